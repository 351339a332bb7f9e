// The loop of the dk and dv kernel, with dQ (fused.hpp) or without, for waves with enough registers for
// several blocks of columns. Each operand read from a tile serves one matrix instruction per block, and a
// workgroup has more keys by the same factor. As in the other early loops, a tile takes two barriers, and
// each of its forms is stored during the products of the other.
//
// Before the loop, all arguments are loaded with one wait, and unneeded divisions are skipped.
#pragma once

#include "device/backward/dkdv/basic.hpp"

namespace fa {

// result[b][step] += rows of the tile (operand A) times own[b]'s columns, over head_dim.
template <class Unit, class Tile, int kSteps, int kAhead, int kBlocks, class Own>
FA_DEVICE void multiply_rows(typename Unit::C (&result)[kBlocks][kSteps], LdsBytes tile,
                             const Own (&own)[kBlocks], int lane) {
  const auto read = reader_of<Unit, Tile, kAhead>(tile, lane);
  const auto multiply = [&](int j, const typename Unit::A& a) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      Unit::multiply(result[b][j % kSteps], a, own[b].operand(j / kSteps));
    }
  };
  read_ahead<Own::kSteps * kSteps, kAhead>([&](int j) { return read(j / kSteps, j % kSteps); }, multiply,
                                           Nothing());
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) Unit::pin(result[b][step]);
  }
}

// sums[b][step] += transposed rows of the tile (operand A) times operand[b], over the tile's rows.
template <class Unit, class Tile, int kSteps, int kAhead, int kBlocks, class Operand>
FA_DEVICE void multiply_transposed(typename Unit::C (&sums)[kBlocks][kSteps], LdsBytes tile,
                                   const Operand (&operand)[kBlocks], int lane) {
  const auto read = reader_of<Unit, Tile, kAhead>(tile, lane);
  const auto multiply = [&](int j, const typename Unit::A& a) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      Unit::multiply(sums[b][j % kSteps], a, operand[b].operand(j / kSteps));
    }
  };
  read_ahead<Operand::kSteps * kSteps, kAhead>([&](int j) { return read(j / kSteps, j % kSteps); }, multiply,
                                               Nothing());
}

// Adds one head of q's part of the sums of a wave's keys, and the keys' part of this head's dQ.
template <class B, class Dq>
FA_DEVICE void add_head_of_blocks(B& block, const typename B::Source& source, float* dq_sums, int head_q,
                                  int wave_key, const typename B::Tiles& tiles,
                                  const typename B::Own (&own)[B::kColumnBlocks], const Dq& dq,
                                  typename B::Sums (&sums)[B::kColumnBlocks]) {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  constexpr int kBlocks = B::kColumnBlocks, kAhead = B::kConfig.prefetch;
  constexpr bool kFixed = Stage::kFixed && !B::kFeatured;
  const bool of_weights = block.is(Role::weights), of_dq = dq.is_of(block);
  const KeyMaskOf<B> given(block, head_q);
  Stage stage;
  const HeadRows rows = Stage::tensor_of_wave(block.thread) == 0 ? source.q : source.dout;
  typename Stage::Place place;
  if constexpr (kFixed) place = Stage::place(block.lds, static_cast<uint32_t>(rows.row_bytes), block.thread);
  float number = 0;
  const auto load = [&](int first) {
    if constexpr (kFixed) {
      stage.load_at(place, typename B::View(rows, first), block.thread);
    } else {
      stage.load([&](int) { return typename B::View(rows, first); }, block.mover());
    }
    number = B::Numbers::load(block, source, first, number);
  };
  const auto store_rows = [&](int set) {
    if constexpr (kFixed) {
      stage.store_rows_at(place, block.thread);
    } else {
      stage.store_rows(block.lds, block.mover());
    }
    B::Numbers::store(block, number, set);
  };
  load(tiles.begin);
  // For the last head's rows, stored at its loop's end.
  if constexpr (B::kTraits.lds_counter) missed_lds_wait<B::kArch>();
  workgroup_barrier();  // LDS is free
  store_rows(block.set);
  for (int first = tiles.begin; first < tiles.end; first += B::kQueries) {
    const Flag seen = tiles.seen_flag(first), masked{tiles.masked_flag(first).sign | block.dropout.sign};
    workgroup_barrier();  // rows and the last tile's dS are there, and all waves are done with its transposes
    if constexpr (kFixed) {
      stage.store_transposed_at(place, block.thread);
    } else {
      stage.store_transposed(block.lds, block.mover());
    }
    typename B::Result result[kBlocks];
    typename B::P packed[kBlocks];
    if (seen) {
      uint32_t bits[kBlocks];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) bits[b] = kept_bits(block, head_q, first, wave_key + b * Unit::kN);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) begin(block, result[b]);
      multiply_rows<Unit, typename Stage::RowTile, B::kSteps, kAhead>(
          result, Stage::rows_of(block.lds, of_weights ? 0 : 1), own, block.reader());
      if (of_weights) {
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          packed[b] =
              weights(block, result[b], head_q, first, wave_key + b * Unit::kN, masked, bits[b], given, b);
        }
      }
    }
    if (of_dq && first > tiles.begin) dq.add(block, dq_sums, first - B::kQueries, Nothing());
    load(first + B::kQueries);
    workgroup_barrier();  // P and transposes are there, and all waves are done with rows and the last dS
    const auto find_gradients = [&](int b) {
      packed[b] = gradients(block, result[b], head_q, first, wave_key + b * Unit::kN, masked, b,
                            deltas_of(block, source));
    };
    const auto add_to_sums = [&] {
      typename B::Operand operand[kBlocks];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) operand[b] = block.operand(packed[b]);
      multiply_transposed<Unit, typename Stage::TransposedTile, B::kSumSteps, kAhead>(
          sums, Stage::transposed_of(block.lds, of_weights ? 1 : 0), operand, block.reader());
    };
    if constexpr (B::kWithDq) {
      if (!of_weights) {
        // Or the others would wait for them at the next barrier.
        if constexpr (Dq::kAllHaveParts) __builtin_amdgcn_s_setprio(1);
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          if (seen) {
            find_gradients(b);
          } else {
            packed[b] = {};
          }
          drop_missing_keys(block, wave_key + b * Unit::kN, packed[b]);
          B::Scores::write(block.scores(), block.pair * kBlocks + b, block.lane, packed[b]);
        }
      }
      if (seen) add_to_sums();
    } else if (seen) {
      if (!of_weights) {
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) find_gradients(b);
      }
      add_to_sums();
    }
    if constexpr (Dq::kAllHaveParts) __builtin_amdgcn_s_setprio(0);
    block.set ^= 1;
    store_rows(block.set);
  }
  if constexpr (B::kWithDq) {
    workgroup_barrier();  // the last tile's dS is there
    if (of_dq) dq.add(block, dq_sums, (tiles.end - 1) / B::kQueries * B::kQueries, Nothing());
  }
}

// The kernel with this loop.
template <class B>
FA_DEVICE void run_column_blocks(BwdArguments arguments, LdsBytes lds) {
  using Unit = typename B::Unit;
  using Dq = DqOf<B>;
  static_assert(B::kOwnBytes == 0 && !B::kExchangeInOperand,
                "tiles.toml: column_blocks needs operands that stay in registers");
  const BwdParams params = loaded_at_once(arguments);
  const WorkgroupPlace place = B::place_of(params);
  const Sequence found = sequence_of<B>(params, place.batch);
  const int first_key = place.block * B::kTile.block_n;
  if (first_key >= found.seqlen_k) return;
  B block(arguments, params, place, found, lds);
  const int wave_key = first_key + block.pair * B::kWaveKeys;
  const typename B::Tiles tiles = block.tiles_of(first_key, wave_key);
  typename B::Sums sums[B::kColumnBlocks] = {};
#pragma unroll
  for (int b = 0; b < B::kColumnBlocks; ++b) {
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) Unit::settle(sums[b][step]);
  }
  if (tiles.begin < tiles.end) {
    Dq dq(block);
    const typename Dq::Transposed keys = dq.load(block, params, first_key);
    typename B::Own own[B::kColumnBlocks];
#pragma unroll
    for (int b = 0; b < B::kColumnBlocks; ++b) own[b] = block.load_own(params, wave_key + b * Unit::kN);
    if constexpr (B::kWithDq) dq.keep(block, keys);
    // Skips an unneeded division, which all waves would wait for.
    const int group = params.nheads == params.nheads_k ? 1 : uniform(params.nheads / params.nheads_k);
    int head_q = block.head_k * group;
    typename B::Source source = block.source(params, head_q);
    float* dq_sums = dq.sums_of(block, params, head_q);
    for (const int past = head_q + group;;) {
      add_head_of_blocks(block, source, dq_sums, head_q, wave_key, tiles, own, dq, sums);
      if (++head_q == past) break;
      const BwdParams& next = loaded_here(arguments);
      source = block.source(next, head_q);
      dq_sums = dq.sums_of(block, next, head_q);
    }
  }
#pragma unroll
  for (int b = 0; b < B::kColumnBlocks; ++b) store(block, wave_key + b * Unit::kN, sums[b]);
}

// This loop.
template <class Shape>
struct ColumnBlocksLoop : BasicLoop<Shape> {
  static constexpr int kColumnBlocks = Shape::kConfig.column_blocks;
  static constexpr bool kAsksAtOnce = true;
  static_assert(
      Shape::kConfig.early_rows && Shape::kConfig.prefetch > 0 && BasicLoop<Shape>::Stage::kLoads == 1,
      "tiles.toml: column_blocks needs early_rows, prefetch, and one piece of a tile for a thread at most");

  template <class B>
  FA_DEVICE static void run(BwdArguments arguments, LdsBytes lds) {
    run_column_blocks<B>(arguments, lds);
  }
};

}  // namespace fa
