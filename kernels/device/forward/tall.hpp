// The forward kernel with tall workgroups: the plain loop with more rows per workgroup.
#pragma once

#include "device/forward/forward.hpp"

namespace fa {

// Defines the kernel for long sequences. The host selects it for calls without features.
#define FA_FORWARD_TALL(name, dtype, head_dim)                                                          \
  extern "C" __attribute__((global))                                                                    \
  __attribute__((amdgpu_flat_work_group_size(fa::tall_tile(fa::kCurrentGfx, dtype, head_dim).threads,   \
                                             fa::tall_tile(fa::kCurrentGfx, dtype, head_dim).threads))) \
  __attribute__((                                                                                       \
      amdgpu_waves_per_eu(fa::tall_config(fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void      \
  name(const fa::FwdParams params) {                                                                    \
    using Plain = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, fa::Rows::many_queries>;           \
    static_assert(!Plain::kNarrow, "values that cannot be narrowed need the featured loop");            \
    __attribute__((shared, aligned(16))) static char lds[Plain::kLdsBytes];                             \
    fa::run_forward<Plain>(params, (fa::LdsBytes)lds);                                                  \
  }

}  // namespace fa
