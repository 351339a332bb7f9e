// The kernels of the gradients of Q: see backward_dq.hpp.
#pragma once

#include "fa/kernel/backward_dq.hpp"

namespace fa {

// Defines the kernel `name`.
#define FA_DQ(name, dtype, head_dim)                                                                         \
  extern "C" __attribute__((global))                                                                         \
  __attribute__((amdgpu_flat_work_group_size(fa::dq_tile(fa::kCurrentGfx, dtype, head_dim).threads,          \
                                             fa::dq_tile(fa::kCurrentGfx, dtype, head_dim).threads)))        \
  __attribute__((amdgpu_waves_per_eu(fa::dq_config(fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void  \
  name(const fa::BwdParams) {                                                                                \
    const fa::BwdArguments arguments = fa::backward_arguments();                                             \
    using Plain = fa::DqBlock<fa::kCurrentGfx, dtype, head_dim, false>;                                      \
    using Featured = fa::DqBlock<fa::kCurrentGfx, dtype, head_dim, true>;                                    \
    __attribute__((                                                                                          \
        shared,                                                                                              \
        aligned(Plain::kLdsAlignment))) static char lds[fa::larger(Plain::kLdsBytes, Featured::kLdsBytes)];  \
    if (fa::is_featured<Plain::kConfig.short_prologue>(arguments)) {                                         \
      fa::run_dq<Featured>(arguments, (fa::LdsBytes)lds);                                                    \
      asm volatile("; keeps the ends of the two apart, which must not share registers");                     \
    } else {                                                                                                 \
      fa::run_dq<Plain>(arguments, (fa::LdsBytes)lds);                                                       \
    }                                                                                                        \
  }

// The same where v and dout have another head dim, without features.
#define FA_DQ_UNEVEN(name, dtype, head_dim)                                                                  \
  extern "C" __attribute__((global))                                                                         \
  __attribute__((amdgpu_flat_work_group_size(fa::dq_uneven_tile(fa::kCurrentGfx, dtype, head_dim).threads,   \
                                             fa::dq_uneven_tile(fa::kCurrentGfx, dtype, head_dim).threads))) \
  __attribute__((                                                                                            \
      amdgpu_waves_per_eu(fa::dq_uneven_config(fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void      \
  name(const fa::BwdParams) {                                                                                \
    using B = fa::DqBlock<fa::kCurrentGfx, dtype, head_dim, false, fa::kUnevenValueDim>;                     \
    __attribute__((shared, aligned(16))) static char lds[B::kLdsBytes];                                      \
    fa::run_dq<B>(fa::backward_arguments(), (fa::LdsBytes)lds);                                              \
  }

// The same with a mask or a bias: the plain loop, and one step more before P is recomputed.
#define FA_DQ_MASKED(name, dtype, head_dim)                                                                  \
  extern "C" __attribute__((global))                                                                         \
  __attribute__((amdgpu_flat_work_group_size(fa::dq_masked_tile(fa::kCurrentGfx, dtype, head_dim).threads,   \
                                             fa::dq_masked_tile(fa::kCurrentGfx, dtype, head_dim).threads))) \
  __attribute__((                                                                                            \
      amdgpu_waves_per_eu(fa::dq_masked_config(fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void      \
  name(const fa::MaskedBwdParams) {                                                                          \
    using Masked = fa::DqBlock<fa::kCurrentGfx, dtype, head_dim, false, head_dim, true>;                     \
    __attribute__((shared, aligned(16))) static char lds[Masked::kLdsBytes];                                 \
    fa::run_dq<Masked>(fa::backward_arguments(), (fa::LdsBytes)lds);                                         \
  }

}  // namespace fa
