// The ping-pong loop of the dk and dv kernel, with dQ (fused.hpp) or without, for ISAs whose matrix
// instructions overlap with VALU work. While the waves of one role multiply, the waves of the other do the
// rest of their work. A tile takes two barriers: rows of the next tile are stored before the first, their
// transposes before the second.
#pragma once

#include "device/arch/current.hpp"
#include "device/backward/dkdv/dq_part.hpp"
#include "device/backward/dkdv/overlap.hpp"

namespace fa {

// Tells the compiler that nothing is in flight.
FA_DEVICE void nothing_in_flight() {
  constexpr int kAll0 = 0x0070;
  __builtin_amdgcn_s_waitcnt(kAll0);
}

// Adds one head of q's part of the sums of a wave's keys, and the keys' part of this head's dQ. Rows of its
// first tile are already stored.
template <class B, class Dq>
FA_DEVICE void add_head_ping_pong(B& block, Moves<B>& moves, float* dq_sums, int head_q, int wave_key,
                                  const typename B::Tiles& tiles, const typename B::Own& own, const Dq& dq,
                                  typename B::Sums& sums) {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  constexpr int kAtOnce = B::kConfig.steps_at_once, kAhead = B::kConfig.prefetch;
  constexpr bool kEarlyOperands = B::kConfig.early_operands,
                 kEarlyRowOperands = B::kWithDq || B::kConfig.early_operands;
  using Rows = Choice<kEarlyRowOperands, EarlyOperands<Unit, typename Stage::RowTile, B::kSteps, kAhead>,
                      NoEarlyOperands>;
  using Transposes =
      Choice<kEarlyOperands, EarlyOperands<Unit, typename Stage::TransposedTile, B::kSumSteps, kAhead>,
             NoEarlyOperands>;
  // In waves that also add up dQ, numbers are loaded before those additions. Later loads would wait for them.
  constexpr bool kNumberFirst = B::kConfig.early_numbers && B::Numbers::kByWave;
  constexpr bool kInterleaves = B::kWithDq && !B::kFeatured;  // P with the last tile's dQ
  const bool of_weights = block.is(Role::weights), of_dq = dq.is_of(block);
  const KeyMaskOf<B> given(block, head_q);
  constexpr bool kMaskAhead = KeyMaskOf<B>::kAhead;
  // Waves that compute P load the next tile's mask into the registers of its scores.
  typename B::Result ahead;
  if constexpr (kMaskAhead) {
    if (of_weights && moves.seen.sign < 0) given.load(block, ahead, tiles.begin, wave_key);
  }
  typename Unit::C zeros = Unit::zero();
  if (B::kConfig.kept_zeros) Unit::settle(zeros);
  for (int first = tiles.begin; first < tiles.end; first += B::kQueries) {
    const bool seen = moves.seen.sign < 0, masked = moves.masked.sign < 0;
    typename B::Result of_tile;
    typename B::Result& result = kMaskAhead ? ahead : of_tile;
    if (kMaskAhead && of_weights) {
      given.begin(block, result, wave_key);
      result[0] = Unit::broadcast_sums(here(moves.first_term(block)), result[0]);
    } else if (B::Numbers::kByWave) {
      begin(block, result, here(moves.first_term(block)), zeros);
    }
    // For the operations in flight at the loop's end.
    if constexpr (B::kMasked) missed_lds_wait<B::kArch>();
    // Rows and the last tile's dS are there, and all waves are done with its transposes.
    tile_barrier<B::kArch>();
    const LdsBytes tile = Stage::rows_of(block.tiles(block.set), of_weights ? 0 : 1);
    Rows tile_rows(tile, block.reader());
    const auto move = [&] {
      moves.store_transposed(block, dq.kept());
      if (kNumberFirst && of_weights) {
        const int from = here_uniform(first + B::kQueries);
        moves.load_rows(block, dq.kept(), from);
        moves.see(tiles, from);
      } else {
        moves.load(block, tiles, dq.kept(), first + B::kQueries);
      }
    };
    typename B::P packed;
    if (!of_weights) move();
    uint32_t bits = 0;
    __builtin_amdgcn_s_setprio(3);  // waves that multiply go first
    if (seen) {
      bits = kept_bits(block, head_q, first, wave_key);
      if (!B::Numbers::kByWave) begin(block, result);
      if constexpr (kEarlyRowOperands) {
        tile_rows.template multiply<B::Own::kSteps>(result, own);
        for (int step = 0; step < B::kSteps; ++step) Unit::pin(result[step]);
      } else {
        multiply_rows<Unit, typename Stage::RowTile, B::kSteps, kAtOnce, kAhead>(result, tile, own,
                                                                                 block.reader());
      }
    }
    if (of_weights) {
      // None is in flight. The compiler mistakes the other role's loads for this wave's, and its own wait for
      // them would also wait for the earlier atomic additions.
      wait_for_loads();
      if (kNumberFirst) moves.load_number(block, here_uniform(first + B::kQueries));
      // Opaque, or the compiler copies all of this for the first tile.
      const bool adds = of_dq && here_uniform(first) > tiles.begin;
      if (kInterleaves && adds && seen) {
        Exponentials<B> scores(result);
        dq.add(block, dq_sums, first - B::kQueries, [&](int gap) { scores.part(block, gap, Dq::gaps()); });
        if constexpr (!B::kConfig.kept_priority) __builtin_amdgcn_s_setprio(1);
        packed = scores.weights(block, first, wave_key, masked);
      } else if (kInterleaves && Dq::kAllHaveParts && adds) {
        dq.add(block, dq_sums, first - B::kQueries, Nothing());
      } else {
        if (adds) dq.add(block, dq_sums, first - B::kQueries, Nothing());
        if constexpr (!B::kConfig.kept_priority) __builtin_amdgcn_s_setprio(1);
        if (seen) {
          Worked<B> copy(result);
          packed = weights(block, copy.result, head_q, first, wave_key, masked, bits, given);
        }
      }
      move();
      if constexpr (kMaskAhead) {
        if (moves.seen.sign < 0) given.load(block, result, first + B::kQueries, wave_key);
      }
      if constexpr (B::kConfig.tight_registers) {
        // Only the other waves hold it: it is dropped here.
        Unit::forget(result[0]);
        moves.stage.forget();
      }
    }
    // P and transposes are there, and all waves are done with rows and the last dS.
    tile_barrier<B::kArch>();
    __builtin_amdgcn_s_setprio(2);
    if constexpr (kLongestResults<B>) asm volatile("s_nop 0");
    typename B::P given;
    // Also for an unseen tile, without written data or results: a branch would take longer.
    if (kEarlyOperands && !of_weights) given = block.given();
    const LdsBytes transposed = Stage::transposed_of(block.tiles(block.set), of_weights ? 1 : 0);
    Transposes transposes(transposed, block.reader());
    if (!of_weights) {
      if (seen) {
        if (!kEarlyOperands) given = block.given();
        // Opaque, or the compiler reads it before the barrier.
        if constexpr (B::kTraits.separate_acc_vgprs) Unit::settle(result[0]);
        Worked<B> copy(result);
        // First, so a masked tile takes the same code as others.
        constexpr bool kFirst = !B::kFeatured && !B::kMasked;
        if (kFirst && masked) mask(block, copy.result, first, wave_key);
        packed = gradients_of(block, given, copy.result, head_q, first, wave_key, !kFirst && masked,
                              moves.numbers);
      } else if constexpr (B::kWithDq) {
        // Opaque, or the compiler also makes zeros for visible tiles.
#pragma unroll
        for (int chunk = 0; chunk < B::P::kChunks; ++chunk) packed.chunk[0][chunk] = here(u32x4{});
      }
      if constexpr (B::kWithDq) {
        drop_missing_keys(block, wave_key, packed);
        if constexpr (B::kConfig.tight_registers) {
          B::Scores::write_to(static_cast<int>(dq.kept()[3]), block.scores(), block.lane, packed);
        } else {
          B::Scores::write(block.scores(), block.pair, block.lane, packed);
        }
      }
    }
    const auto store_rows = [&] {
      moves.store_rows(block, dq.kept(), block.set ^ 1);
      moves.store_number(block, block.set ^ 1);
    };
    if (!of_weights) store_rows();  // while the other waves multiply
    if (seen) {
      const typename B::Operand operand(block.operand_area(), block.lane, packed);
      if constexpr (kEarlyOperands) {
        transposes.template multiply<B::Operand::kSteps>(sums, operand);
      } else {
        multiply_transposed<Unit, typename Stage::TransposedTile, B::kSumSteps, kAtOnce, kAhead>(
            sums, transposed, operand, block.reader());
      }
    }
    __builtin_amdgcn_s_setprio(0);
    if (of_weights) store_rows();
    block.set ^= 1;
  }
  // Only additions can be in flight here, and none is waited for.
  if constexpr (!Dq::kDirectKeys) nothing_in_flight();
  if constexpr (B::kWithDq) {
    tile_barrier<B::kArch>();  // the last tile's dS is there
    if (of_dq) dq.add(block, dq_sums, (tiles.end - 1) / B::kQueries * B::kQueries, Nothing());
  }
}

// The kernel with this loop.
template <class B>
FA_DEVICE void run_ping_pong(BwdArguments arguments, LdsBytes lds) {
  using Dq = DqOf<B>;
  const BwdParams params = loaded_at_once(arguments);
  const WorkgroupPlace place = B::place_of(params);
  const Sequence found = sequence_of<B>(params, place.batch);
  const int first_key = place.block * B::kTile.block_n;
  if (first_key >= found.seqlen_k) return;
  B block(arguments, params, place, found, lds);
  const int wave_key = first_key + block.pair * B::Unit::kN;
  const typename B::Tiles tiles = {
      block.visible.tiles_of_keys_by_bounds(first_key, B::kTile.block_n, wave_key, B::Unit::kN, B::kQueries)};
  constexpr bool kDirectKeys = Dq::kDirectKeys;
  typename B::Sums sums;
  if constexpr (!kDirectKeys) {
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) sums[step] = {};
  }
  if (tiles.begin < tiles.end) {
    Dq dq(block);
    typename Dq::Transposed keys;
    if constexpr (kDirectKeys) {
      dq.begin(block, params, first_key);
    } else {
      keys = dq.load(block, params, first_key);
    }
    const typename B::Own own = own_keys(block, params, wave_key);
    // Skips an unneeded division, which all waves would wait for.
    const int group = params.nheads == params.nheads_k ? 1 : uniform(params.nheads / params.nheads_k);
    int head_q = block.head_k * group;
    Moves<B> moves(block, params, head_q);
    const u32x4 places = moves.places(block);
    moves.load(block, tiles, places, tiles.begin);
    // Placed after the loads.
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) {
      if constexpr (kDirectKeys) {
        sums[step] = B::Unit::zero_by_product();
      } else {
        B::Unit::settle(sums[step]);
      }
    }
    float* dq_sums = dq.sums_of(block, params, head_q);
    if constexpr (!kDirectKeys) dq.store(block, keys);
    moves.store_rows(block, places, block.set);
    if constexpr (B::kWithDq) {
      if constexpr (kDirectKeys) dq.wait();
      tile_barrier<B::kArch>();
      if constexpr (kDirectKeys) {
        dq.read_direct(block);
      } else {
        dq.read(block);
      }
      if (B::kConfig.tight_registers && !block.is(Role::weights)) dq.keep_places(places);
      if (!B::Numbers::kByWave) tile_barrier<B::kArch>();  // these have K^T's place
    }
    moves.store_number(block, block.set);
    for (const int past = head_q + group;;) {
      add_head_ping_pong(block, moves, dq_sums, head_q, wave_key, tiles, own, dq, sums);
      if (++head_q == past) break;
      const BwdParams& next = loaded_here(arguments);
      moves.of_head(block, next, head_q);
      dq_sums = dq.sums_of(block, next, head_q);
      moves.load(block, tiles, dq.kept(), tiles.begin);
      tile_barrier<B::kArch>();  // LDS is free
      moves.store_rows(block, dq.kept(), block.set);
      moves.store_number(block, block.set);
    }
  } else if constexpr (kDirectKeys) {
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) {
      sums[step] = typename B::Unit::C{};
      B::Unit::settle(sums[step]);
    }
  }
  store(block, wave_key, sums);
}

// This loop.
template <class Shape>
struct PingPongLoop : Shape {
  // If half of the threads suffice to move tiles, the waves waiting for the matrix unit do it.
  static constexpr bool kHalfMoves = (!Shape::kConfig.row_major || Shape::kConfig.tight_registers) &&
                                     Shape::kQueries / 2 * (Shape::kHeadDim / 4) <= Shape::kTile.threads / 2;
  static constexpr int kMovers = kHalfMoves ? Shape::kTile.threads / 2 : Shape::kTile.threads;
  // With `row_major`, tiles are in LDS once, and turned when read. There are two of each.
  using Stage = Choice<Shape::kConfig.row_major,
                       TurnedTensors<typename Shape::Unit, Shape::kQueries, Shape::kHeadDim, kMovers, 2>,
                       TransposedStage<typename Shape::Unit, Shape::kQueries, Shape::kHeadDim, kMovers,
                                       Shape::kConfig.padded_tiles, 2, Shape::kConfig.overlaid>>;
  using Numbers = Choice<Shape::kFeatured, ThreadNumbers<Shape, 2>, OwnNumbers>;

  template <class B>
  FA_DEVICE static void run(BwdArguments arguments, LdsBytes lds) {
    run_ping_pong<B>(arguments, lds);
  }
};

}  // namespace fa
