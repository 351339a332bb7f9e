// The kernel of the gradients of K and V for rows of v and dout shorter than those of q and k: the plain loop
// with early rows (dkdv/loop.hpp). The two waves of a pair then have products of different lengths, so each
// has its own code between the shared barriers. Tiles are of UnevenStage.
#pragma once

#include "device/backward/dkdv/loop.hpp"
#include "device/memory/uneven_stage.hpp"

namespace fa {

// A wave's registers. Both waves of a pair have V's number of steps of K or V, and of sums. The wave with K
// has more steps of K, and the wave that sums dK more sums, in the same registers.
template <class B>
struct UnevenParts {
  using Unit = typename B::Unit;
  using A = typename Unit::A;
  using C = typename Unit::C;
  static constexpr int kSteps = B::kValueDim / Unit::kK, kMore = B::kHeadDim / Unit::kK - kSteps;
  static constexpr int kSums = B::kValueDim / Unit::kM, kMoreSums = B::kSumSteps - kSums;
  static_assert(kMore * sizeof(A) <= kMoreSums * sizeof(C), "the registers of sums are enough");
  static_assert(Unit::kColumns == 1 && B::Own::kLdsBytes == 0,
                "tiles.toml: bwd_dkdv_uneven keeps K and V in registers");
  using Own = Query<Unit, B::kValueDim, kSteps, B::kConfig.padded_tiles>;

  // The steps of K beyond V's.
  struct More {
    static constexpr int kSteps = kMore, kUnroll = kMore, kLdsBytes = 0;
    const UnevenParts& parts;
    FA_DEVICE typename Unit::B operand(int i) const {
      typename Unit::B b;
      b.column[0] = reinterpret_cast<const A*>(parts.more)[i];
      return b;
    }
  };

  Own own;
  C sums[kSums] = {};
  C more[kMoreSums] = {};

  FA_DEVICE UnevenParts() {
#pragma unroll
    for (int step = 0; step < kSums; ++step) Unit::settle(sums[step]);
#pragma unroll
    for (int step = 0; step < kMoreSums; ++step) Unit::settle(more[step]);
  }

  FA_DEVICE void load(const B& block, int wave_key) {
    const BwdParams& params = loaded_here(block.arguments);
    const bool of_k = block.is(Role::weights);
    const BwdInput tensor = of_k ? params.k : params.v;
    const HeadRows rows = rows_of(tensor, params.cu_seqlens_k != nullptr, block.batch, block.head_k,
                                  block.sequence.k_first, block.sequence.seqlen_k);
    const QuerySign sign(of_k ? params.scale : 1.0f);
    Unchanged convert;
    own =
        Own(block.own_area(), BufferView<Unit::kN, B::kValueDim * 2, B::kTraits.buffer_word3>(rows, wave_key),
            sign, convert, block.lane);
    if (!of_k) return;
    QueryInRegisters<Unit, kSteps, kMore> rest;
    rest.load(BufferView<Unit::kN, B::kHeadDim * 2, B::kTraits.buffer_word3>(rows, wave_key), sign,
              block.lane);
#pragma unroll
    for (int i = 0; i < kMore; ++i) reinterpret_cast<A*>(more)[i] = rest.step[i].column[0];
  }
};

// Adds one head of q's part of the sums of a wave's keys, as add_head_early.
template <class B>
FA_DEVICE void add_head_uneven(B& block, int head_q, int wave_key, const typename B::Tiles& tiles,
                               UnevenParts<B>& parts) {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  using Parts = UnevenParts<B>;
  using RowTile = typename Stage::RowTile;
  using TransposedTile = typename Stage::TransposedTile;
  constexpr int kAtOnce = B::kConfig.steps_at_once, kAhead = B::kConfig.prefetch;
  static_assert(kAhead > 0, "tiles.toml: bwd_dkdv_uneven needs prefetch");
  constexpr int kMoreAt = RowTile::offset(0, B::kValueDim / 8);  // in a row
  const bool of_weights = block.is(Role::weights);
  Stage stage;
  const typename B::Source source = block.source(head_q);
  float number = 0;
  const auto load = [&](int first) {
    stage.load(
        [&](int tensor) {
          const int last_bytes = (tensor == 0 ? B::kHeadDim : B::kValueDim) * 2;
          return typename B::View(tensor == 0 ? source.q : source.dout, first, last_bytes);
        },
        block.mover());
    number = B::Numbers::load(block, source, first, number);
  };
  const auto store_rows = [&](int set) {
    raise_dout(block, stage);
    stage.store_rows(block.lds, block.mover());
    B::Numbers::store(block, number, set);
  };
  load(tiles.begin);
  // For the last head's rows, stored at its loop's end.
  if constexpr (B::kTraits.lds_counter) missed_lds_wait<B::kArch>();
  workgroup_barrier();  // LDS is free
  store_rows(block.set);
  for (int first = tiles.begin; first < tiles.end; first += B::kQueries) {
    const Flag seen = tiles.seen_flag(first), masked = tiles.masked_flag(first);
    workgroup_barrier();  // rows are there, and all waves are done with the last tile's transposes
    stage.store_transposed(block.lds, block.mover());
    typename B::Result result;
    typename B::P packed;
    if (seen) {
      begin(block, result);
      const LdsBytes rows = Stage::rows_of(block.lds, of_weights ? 0 : 1);
      multiply_rows<Unit, RowTile, B::kSteps, kAtOnce, kAhead>(result, rows, parts.own, block.reader());
      if (of_weights) {
        multiply_rows<Unit, RowTile, B::kSteps, kAtOnce, kAhead>(result, rows + kMoreAt,
                                                                 typename Parts::More{parts}, block.reader());
        packed = weights(block, result, head_q, first, wave_key, masked, 0, KeyMaskOf<B>(block, head_q));
      }
    }
    load(first + B::kQueries);
    workgroup_barrier();  // P and transposes are there, and all waves are done with rows
    if (seen) {
      if (!of_weights) packed = gradients(block, result, head_q, first, wave_key, masked);
      const typename B::Operand operand = block.operand(packed);
      const LdsBytes transposed = Stage::transposed_of(block.lds, of_weights ? 1 : 0);
      multiply_transposed<Unit, TransposedTile, Parts::kSums, kAtOnce, kAhead>(parts.sums, transposed,
                                                                               operand, block.reader());
      // Placed here: the compiler would move the products behind the branch, and keep their operands.
#pragma unroll
      for (int step = 0; step < Parts::kSums; ++step) Unit::pin(parts.sums[step]);
      if (!of_weights) {
        multiply_transposed<Unit, TransposedTile, Parts::kMoreSums, kAtOnce, kAhead>(
            parts.more, TransposedTile::period(transposed, Parts::kSums), operand, block.reader());
      }
    }
    block.set ^= 1;
    store_rows(block.set);
  }
}

template <Gfx kGfx, DType kDType, int kHeadDim>
struct Uneven : DkDvShape<Op::bwd_dkdv_uneven, kGfx, kDType, kHeadDim> {
  using Shape = DkDvShape<Op::bwd_dkdv_uneven, kGfx, kDType, kHeadDim>;
  static constexpr int kValueDim = kUnevenValueDim;
  static constexpr bool kShortOfScalars = true;
  using Stage = UnevenStage<typename Shape::Unit, Shape::kQueries, kHeadDim, kValueDim, Shape::kMovers,
                            Shape::kConfig.padded_tiles>;
  using Numbers = LaneNumbers<Shape>;

  template <class B>
  FA_DEVICE static void run(BwdArguments arguments, LdsBytes lds) {
    const BwdParams& params = loaded_here(arguments);
    const WorkgroupPlace place = B::place_of(params);
    const Sequence found = sequence_of<B>(params, place.batch);
    const int first_key = place.block * B::kTile.block_n;
    if (first_key >= found.seqlen_k) return;
    B block(arguments, params, place, found, lds);
    const int wave_key = first_key + block.pair * B::Unit::kN;
    const typename B::Tiles tiles = block.tiles_of(first_key, wave_key);
    using Parts = UnevenParts<B>;
    Parts parts;
    if (tiles.begin < tiles.end) {
      parts.load(block, wave_key);
      const int group = uniform(params.nheads / params.nheads_k);
      for (int i = 0; i < group; ++i) {
        add_head_uneven(block, block.head_k * group + i, wave_key, tiles, parts);
      }
    }
    typename B::Sums sums;
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) {
      sums[step] = step < Parts::kSums ? parts.sums[step] : parts.more[step - Parts::kSums];
    }
    store(block, wave_key, sums);
  }
};

template <Gfx kGfx, DType kDType, int kHeadDim>
using UnevenBlock = DkDvBlock<Uneven<kGfx, kDType, kHeadDim>>;

// Defines the kernel `name`.
#define FA_DKDV_UNEVEN(name, dtype, head_dim)                           \
  FA_KERNEL(dkdv, bwd_dkdv_uneven, dtype, head_dim)                     \
  name(const fa::BwdParams) {                                           \
    using B = fa::UnevenBlock<fa::kCurrentGfx, dtype, head_dim>;        \
    __attribute__((shared, aligned(16))) static char lds[B::kLdsBytes]; \
    B::template run<B>(fa::backward_arguments(), (fa::LdsBytes)lds);    \
  }

}  // namespace fa
