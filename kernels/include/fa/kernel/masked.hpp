// The forward kernel with a mask or a bias: the plain loop, and one step more before the softmax.
#pragma once

#include "fa/kernel/forward.hpp"

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

// Where bf16 is narrowed, rows whose values cannot be are computed again by a loop that unpacks them.
template <class Narrow, class Wide>
FA_DEVICE void run_masked(const FwdParams& params, LdsBytes lds) {
  assume_dense(params);
  if constexpr (Narrow::kNarrow) {
    if (run_forward<Narrow>(params, lds)) return;
    const FwdParams& again = reloaded(kernel_arguments());
    assume_dense(again);
    run_forward<Wide>(again, lds);
    asm volatile("; keeps the ends of the two apart, which must not share registers");
  } else {
    run_forward<Narrow>(params, lds);
  }
}

#define FA_MASKED(name, dtype, head_dim)                                                                  \
  extern "C" __attribute__((global)) __attribute__((                                                      \
      amdgpu_flat_work_group_size(fa::fwd_masked_tile(fa::kCurrentGfx, dtype, head_dim).threads,          \
                                  fa::fwd_masked_tile(fa::kCurrentGfx, dtype, head_dim).threads)))        \
  __attribute__((                                                                                         \
      amdgpu_waves_per_eu(fa::fwd_masked_config(fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void  \
  name(const fa::MaskedParams params) {                                                                   \
    using Narrow = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, fa::Rows::queries, true>;           \
    using Wide =                                                                                          \
        fa::Choice<Narrow::kNarrow,                                                                       \
                   fa::Block<fa::kCurrentGfx, dtype, head_dim, Narrow::kNarrow, fa::Rows::queries, true>, \
                   Narrow>;                                                                               \
    __attribute__((                                                                                       \
        shared,                                                                                           \
        aligned(Narrow::kLdsAlignment))) static char lds[fa::larger(Narrow::kLdsBytes, Wide::kLdsBytes)]; \
    fa::run_masked<Narrow, Wide>(params.fwd, (fa::LdsBytes)lds);                                          \
  }

}  // namespace fa
