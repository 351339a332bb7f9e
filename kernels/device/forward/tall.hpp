// The forward kernel with tall workgroups: the plain loop with more rows per workgroup.
#pragma once

#include "device/forward/forward.hpp"

namespace fa {

// Defines the kernel for long sequences. The host selects it for calls without features.
#define FA_FORWARD_TALL(name, dtype, head_dim)                                               \
  FA_KERNEL(forward, fwd_tall, dtype, head_dim)                                              \
  name(const fa::FwdParams params) {                                                         \
    using Plain = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, fa::Op::fwd_tall>;      \
    static_assert(!Plain::kNarrow, "values that cannot be narrowed need the featured loop"); \
    __attribute__((shared, aligned(16))) static char lds[Plain::kLdsBytes];                  \
    if constexpr (Plain::kConfig.short_prologue) {                                           \
      fa::FwdParams own = fa::loaded_at_once(fa::kernel_arguments());                        \
      fa::run_in_short<Plain>(own, (fa::LdsBytes)lds);                                       \
    } else {                                                                                 \
      fa::run_forward<Plain>(params, (fa::LdsBytes)lds);                                     \
    }                                                                                        \
  }

}  // namespace fa
