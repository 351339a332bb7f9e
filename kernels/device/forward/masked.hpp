// The forward kernel with a mask or bias: the plain loop with one more step before the softmax.
#pragma once

#include "device/forward/forward.hpp"

namespace fa {

// A masked call is dense, and its sequences have all keys.
FA_DEVICE void assume_dense(const FwdParams& p) {
  __builtin_assume(p.cu_seqlens_q == nullptr);
  __builtin_assume(p.cu_seqlens_k == nullptr);
  __builtin_assume(p.seqused_k == nullptr);
  __builtin_assume(p.leftpad_k == nullptr);
  __builtin_assume(p.block_table == nullptr);
  __builtin_assume(p.cache_batch_idx == nullptr);
}

// The loop of one block, with a short prologue.
template <class B>
FA_DEVICE void run_masked_in_short(LdsBytes lds) {
  static_assert(B::kConfig.short_prologue, "tiles.toml: mask_loops needs short_prologue");
  FwdParams params = loaded_at_once(kernel_arguments());
  run_in_short<B>(params, lds);
}

// If bf16 is narrowed, rows with other values are recomputed by a loop that unpacks them.
template <class Narrow, class Wide>
FA_DEVICE void run_masked(const FwdParams& params, LdsBytes lds) {
  if constexpr (!Narrow::kConfig.short_prologue) assume_dense(params);
  if constexpr (Narrow::kNarrow) {
    if (run_forward<Narrow>(params, lds)) return;
    const FwdParams& again = reloaded(kernel_arguments());
    assume_dense(again);
    run_forward<Wide>(again, lds);
    asm volatile("; keeps the ends of the two apart, which must not share registers");
  } else if constexpr (Narrow::kConfig.short_prologue) {
    if constexpr (Narrow::kHastens) prioritise<Narrow, 3>();
    run_masked_in_short<Narrow>(lds);
  } else {
    run_forward<Narrow>(params, lds);
  }
}

// A loop for boolean masks and one for biases. Each loads its own arguments. Both sets together would exceed
// the scalar registers.
template <class Boolean, class Biases>
FA_DEVICE void run_mask_loops(int32_t kind, LdsBytes lds) {
  if constexpr (Boolean::kHastens) prioritise<Boolean, 3>();
  if (static_cast<MaskKind>(kind) == MaskKind::bytes) {
    run_masked_in_short<Boolean>(lds);
  } else {
    run_masked_in_short<Biases>(lds);
    asm volatile("; keeps the ends of the two apart, which must not share registers");
  }
}

// A loop without dropout, and one with it.
template <class Without, class With>
FA_DEVICE void run_dropout_loops(const FwdParams& params, LdsBytes lds) {
  static_assert(!Without::kNarrow && !With::kNarrow, "values that cannot be narrowed need another loop");
  if (params.dropout_below == 0) {
    run_masked<Without, Without>(params, lds);
  } else {
    run_masked<With, With>(reloaded(kernel_arguments()), lds);
    asm volatile("; keeps the ends of the two apart, which must not share registers");
  }
}

#define FA_MASKED(name, dtype, head_dim)                                                                  \
  FA_KERNEL(forward, fwd_masked, dtype, head_dim)                                                         \
  name(const fa::MaskedParams params) {                                                                   \
    constexpr fa::Op kOp = fa::Op::fwd_masked;                                                            \
    using Narrow = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, kOp, fa::Masks::any>;               \
    using Wide =                                                                                          \
        fa::Choice<Narrow::kNarrow,                                                                       \
                   fa::Block<fa::kCurrentGfx, dtype, head_dim, Narrow::kNarrow, kOp, fa::Masks::any>,     \
                   Narrow>;                                                                               \
    __attribute__((                                                                                       \
        shared,                                                                                           \
        aligned(Narrow::kLdsAlignment))) static char lds[fa::larger(Narrow::kLdsBytes, Wide::kLdsBytes)]; \
    if constexpr (Narrow::kMaskLoops) {                                                                   \
      using Boolean = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, kOp, fa::Masks::boolean>;        \
      using Biases = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, kOp, fa::Masks::biases>;          \
      fa::run_mask_loops<Boolean, Biases>(params.mask_kind, (fa::LdsBytes)lds);                           \
    } else if constexpr (Narrow::kDropoutLoops) {                                                         \
      using Without = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, kOp, fa::Masks::any, false>;     \
      fa::run_dropout_loops<Without, Narrow>(params.fwd, (fa::LdsBytes)lds);                              \
    } else {                                                                                              \
      fa::run_masked<Narrow, Wide>(params.fwd, (fa::LdsBytes)lds);                                        \
    }                                                                                                     \
  }

}  // namespace fa
