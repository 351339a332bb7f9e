// The kernels of the gradients of Q: see dq/loop.hpp.
#pragma once

#include "device/backward/dq/loop.hpp"
#include "device/backward/parts/shown_tiles.hpp"

namespace fa {

// kMasks: the masks handled by the loop, if the kernel has one.
template <class B, Masks kMasks>
FA_DEVICE void run_dq(const BwdParams& params, BwdArguments arguments, LdsBytes lds) {
  using Unit = typename B::Unit;
  const WorkgroupPlace place = place_in(params.order);
  const Sequence found = sequence_of<B>(params, place.batch);
  const int first_row = place.block * B::kTile.block_m;
  if (first_row >= found.seqlen_q) return;
  const B block(arguments, params, place, found, lds);
  const int wave_row = first_row + block.wave * Unit::kN;
  typename B::Tiles tiles = block.tiles_of(first_row, wave_row);
  if constexpr (B::kMasked) keep_shown_keys(block, first_row, tiles);
  typename B::Sums sums = {};
#pragma unroll
  for (int step = 0; step < B::kSumSteps; ++step) Unit::settle(sums[step]);
  if (tiles.begin < tiles.end) {
    const auto loaded = [&]() -> const BwdParams& {
      return B::kConfig.short_prologue ? params : loaded_here(arguments);
    };
    const BwdParams& own = loaded();
    const auto q =
        block.template load_own<typename B::Q>(loaded(), own.q, own.scale, wave_row, block.own_area());
    using Sign = Choice<RaisedOf<B>::kIs, DoutSign<RaisedOf<B>>, QuerySign>;
    const auto dout = block.template load_own<typename B::Dout, Sign>(loaded(), own.dout, 1, wave_row,
                                                                      block.own_area() + B::Q::kLdsBytes);
    if constexpr (B::kDirect) {
      add_keys_direct<kMasks>(block, loaded(), wave_row, tiles, q, dout, sums);
    } else if constexpr (B::kRowMajor) {
      add_keys_row_major(block, loaded(), wave_row, tiles, q, dout, sums);
    } else if constexpr (B::kConfig.early_rows) {
      const typename B::Numbers numbers = block.load_numbers(loaded(), wave_row);
      add_keys_early(block, wave_row, tiles, q, dout, numbers, sums);
    } else {
      add_keys(block, params, wave_row, tiles, q, dout, sums);
    }
  }
  store(block, wave_row, sums);
}

template <class B, Masks kMasks = Masks::any>
FA_DEVICE void run_dq(BwdArguments arguments, LdsBytes lds) {
  if constexpr (B::kConfig.short_prologue) {
    run_dq<B, kMasks>(loaded_at_once(arguments), arguments, lds);
  } else {
    run_dq<B, kMasks>(loaded_here(arguments), arguments, lds);
  }
}

// A loop for boolean masks and one for biases, or one for both.
template <class B>
FA_DEVICE void run_dq_masked(BwdArguments arguments, LdsBytes lds) {
  if constexpr (!B::kMaskSooner) {
    run_dq<B>(arguments, lds);
  } else if (static_cast<MaskKind>(uniform(ranged_here(arguments).mask_kind)) == MaskKind::bytes) {
    run_dq<B, Masks::boolean>(arguments, lds);
    asm volatile("; keeps the ends of the two apart, which must not share registers");
  } else {
    run_dq<B, Masks::biases>(arguments, lds);
  }
}

// Defines the kernel `name`.
#define FA_DQ(name, dtype, head_dim)                                                                        \
  FA_KERNEL(dq, bwd_dq, dtype, head_dim)                                                                    \
  name(const fa::BwdParams) {                                                                               \
    const fa::BwdArguments arguments = fa::backward_arguments();                                            \
    using Plain = fa::DqBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::bwd_dq, false>;                     \
    using Featured = fa::DqBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::bwd_dq, true>;                   \
    __attribute__((                                                                                         \
        shared,                                                                                             \
        aligned(Plain::kLdsAlignment))) static char lds[fa::larger(Plain::kLdsBytes, Featured::kLdsBytes)]; \
    if (fa::is_featured<Plain::kConfig.short_prologue>(arguments)) {                                        \
      fa::run_dq<Featured>(arguments, (fa::LdsBytes)lds);                                                   \
      asm volatile("; keeps the ends of the two apart, which must not share registers");                    \
    } else {                                                                                                \
      fa::run_dq<Plain>(arguments, (fa::LdsBytes)lds);                                                      \
    }                                                                                                       \
  }

// The kernel for another head dim of v and dout, without features.
#define FA_DQ_UNEVEN(name, dtype, head_dim)                                                               \
  FA_KERNEL(dq, bwd_dq_uneven, dtype, head_dim)                                                           \
  name(const fa::BwdParams) {                                                                             \
    using B =                                                                                             \
        fa::DqBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::bwd_dq_uneven, false, fa::kUnevenValueDim>; \
    __attribute__((shared, aligned(16))) static char lds[B::kLdsBytes];                                   \
    fa::run_dq<B>(fa::backward_arguments(), (fa::LdsBytes)lds);                                           \
  }

// The kernel with a mask or bias: the plain loop with one more step before P is recomputed.
#define FA_DQ_MASKED(name, dtype, head_dim)                                                          \
  FA_KERNEL(dq, bwd_dq_masked, dtype, head_dim)                                                      \
  name(const fa::MaskedBwdParams) {                                                                  \
    using Masked =                                                                                   \
        fa::DqBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::bwd_dq_masked, false, head_dim, true>; \
    __attribute__((shared, aligned(Masked::kLdsAlignment))) static char lds[Masked::kLdsBytes];      \
    fa::run_dq_masked<Masked>(fa::backward_arguments(), (fa::LdsBytes)lds);                          \
  }

}  // namespace fa
