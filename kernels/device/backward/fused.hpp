// The kernel of all gradients: those of the separate kernel's loops, and dQ from the same dS. This saves two
// of seven products. Workgroups add their keys' part of dQ with atomics, in any order.
//
//   dQ += dS * K     a tile later, by waves with a part of K^T in registers (dkdv/dq_part.hpp)
//
// dS passes through LDS in 16 bits, transposed. Sums are fp32, in an order for atomics: a result's registers
// one after the other, so each instruction adds to consecutive addresses. Rows and sequences are padded to
// whole tiles, so masking is unnecessary. convert.hpp turns the sums into dq.
#pragma once

#include "device/backward/separate.hpp"

namespace fa {

// As add_head_early (dkdv/loop.hpp), and adds the keys' part of this head's dQ.
template <class B>
FA_DEVICE void add_head_fused(B& block, int head_q, int wave_key, const typename B::Tiles& tiles,
                              const typename B::Own& own, const DqPart<B>& dq, typename B::Sums& sums) {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  constexpr int kAtOnce = B::kConfig.steps_at_once;
  constexpr int kAhead = B::kConfig.prefetch;
  const bool of_weights = block.is(Role::weights), of_dq = dq.is_of(block);
  const KeyMaskOf<B> given(block, head_q);
  Stage stage;
  const typename B::Source source = block.source(head_q);
  const HeadRows rows = Stage::tensor_of_wave(block.thread) == 0 ? source.q : source.dout;
  constexpr bool kFixed = Stage::kFixed && !B::kFeatured;
  typename Stage::Place place;
  if constexpr (kFixed) place = Stage::place(block.lds, static_cast<uint32_t>(rows.row_bytes), block.thread);
  float* const dq_sums = dq.sums_of(block, head_q);
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
    raise_dout(block, stage);
    if constexpr (kFixed) {
      stage.store_rows_at(place, block.thread);
    } else {
      stage.store_rows(block.lds, block.mover());
    }
    B::Numbers::store(block, number, set);
  };
  load(tiles.begin);
  workgroup_barrier();  // LDS is free
  store_rows(block.set);
  for (int first = tiles.begin; first < tiles.end; first += B::kQueries) {
    const Flag seen = tiles.seen_flag(first), masked = tiles.masked_flag(first);
    workgroup_barrier();  // rows and the last tile's dS are there, and all waves are done with its transposes
    if constexpr (kFixed) {
      stage.store_transposed_at(place, block.thread);
    } else {
      stage.store_transposed(block.lds, block.mover());
    }
    typename B::Result result;
    typename B::P packed;
    uint32_t bits = 0;
    if (seen) {
      bits = kept_bits(block, head_q, first, wave_key);
      begin(block, result);
      multiply_rows<Unit, typename Stage::RowTile, B::kSteps, kAtOnce, kAhead>(
          result, Stage::rows_of(block.lds, of_weights ? 0 : 1), own, block.reader());
    }
    if (of_weights && seen) packed = weights(block, result, head_q, first, wave_key, masked, bits, given);
    if (of_dq && first > tiles.begin) dq.add(block, dq_sums, first - B::kQueries, Nothing());
    load(first + B::kQueries);
    workgroup_barrier();  // P and transposes are there, and all waves are done with rows and the last dS
    if (!of_weights) {
      // Or the others would wait for them at the next barrier.
      if constexpr (DqPart<B>::kAllHaveParts) __builtin_amdgcn_s_setprio(1);
      if (seen) {
        packed = gradients(block, result, head_q, first, wave_key, masked);
      } else {
        packed = {};
      }
      drop_missing_keys(block, wave_key, packed);
      B::Scores::write(block.scores(), block.pair, block.lane, packed);
    }
    if (seen) {
      const typename B::Operand operand = block.operand(packed);
      multiply_transposed<Unit, typename Stage::TransposedTile, B::kSumSteps, kAtOnce, kAhead>(
          sums, Stage::transposed_of(block.lds, of_weights ? 1 : 0), operand, block.reader());
    }
    if constexpr (DqPart<B>::kAllHaveParts) __builtin_amdgcn_s_setprio(0);
    block.set ^= 1;
    store_rows(block.set);
  }
  workgroup_barrier();  // the last tile's dS is there
  if (of_dq) dq.add(block, dq_sums, (tiles.end - 1) / B::kQueries * B::kQueries, Nothing());
}

template <class Shape>
struct Fused : LoopOf<Shape> {
  static constexpr bool kWithDq = true;
  static_assert(Shape::kConfig.ping_pong || Shape::kConfig.early_rows,
                "tiles.toml: bwd_fused needs ping_pong or early_rows");
};

template <Gfx kGfx, DType kDType, int kHeadDim, bool kFeatured>
using FusedBlock = DkDvBlock<Fused<DkDvShape<Op::bwd_fused, kGfx, kDType, kHeadDim, kFeatured>>>;

// The launch's loop, or the only one.
template <Gfx kGfx, DType kDType, int kHeadDim>
struct FusedKernel {
  using Plain = FusedBlock<kGfx, kDType, kHeadDim, false>;
  using Featured = FusedBlock<kGfx, kDType, kHeadDim, true>;
  static constexpr bool kFeatures = Plain::kConfig.features;
  static constexpr int lds_bytes() {
    if constexpr (kFeatures) return larger(Plain::kLdsBytes, Featured::kLdsBytes);
    return Plain::kLdsBytes;
  }

  FA_DEVICE static void run(BwdArguments arguments, LdsBytes lds) {
    if constexpr (kFeatures) {
      constexpr bool kAtOnce = Plain::kAsksAtOnce || Plain::Scores::kTurned;
      if (is_featured<kAtOnce>(arguments)) {
        Featured::template run<Featured>(arguments, lds);
        asm volatile("; keeps the ends of the two apart, which must not share registers");
        return;
      }
    }
    Plain::template run<Plain>(arguments, lds);
  }
};

// Defines the kernel `name`.
#define FA_FUSED(name, dtype, head_dim)                                                                  \
  FA_KERNEL(dkdv, bwd_fused, dtype, head_dim)                                                            \
  name(const fa::BwdParams) {                                                                            \
    using Kernel = fa::FusedKernel<fa::kCurrentGfx, dtype, head_dim>;                                    \
    __attribute__((shared, aligned(Kernel::Plain::kLdsAlignment))) static char lds[Kernel::lds_bytes()]; \
    Kernel::run(fa::backward_arguments(), (fa::LdsBytes)lds);                                            \
  }

}  // namespace fa
