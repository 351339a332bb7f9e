// The forward kernel for rows of v and out shorter than those of q and k: the plain loop.
#pragma once

#include "device/forward/forward.hpp"

namespace fa {

// Defines the kernel. The host selects it for calls without features.
#define FA_FORWARD_UNEVEN(name, dtype, head_dim)                                              \
  FA_KERNEL(forward, fwd_uneven, dtype, head_dim)                                             \
  name(const fa::FwdParams params) {                                                          \
    using Plain = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, fa::Op::fwd_uneven>;     \
    static_assert(!Plain::kNarrow, "values that cannot be narrowed need the featured loop");  \
    __attribute__((shared, aligned(Plain::kLdsAlignment))) static char lds[Plain::kLdsBytes]; \
    if constexpr (Plain::kConfig.short_prologue) {                                            \
      fa::run_plain<Plain>(fa::kernel_arguments(), (fa::LdsBytes)lds);                        \
    } else {                                                                                  \
      __builtin_assume(params.block_table == nullptr);                                        \
      fa::run_forward<Plain>(params, (fa::LdsBytes)lds);                                      \
    }                                                                                         \
  }

}  // namespace fa
