// Decode over a cache of 8 bits an element: the loop of decode, with all its features.
#pragma once

#include "device/forward/forward.hpp"

namespace fa {

#define FA_DECODE_8BIT(name, dtype, head_dim)                                             \
  FA_KERNEL(forward, decode_8bit, dtype, head_dim)                                        \
  name(const fa::CodedParams params) {                                                    \
    using B = fa::Block<fa::kCurrentGfx, dtype, head_dim, true, fa::Op::decode_8bit>;     \
    __attribute__((shared, aligned(B::kLdsAlignment))) static char lds[B::kLdsBytes];     \
    fa::run_forward<B>(params.fwd, (fa::LdsBytes)lds);                                    \
  }

}  // namespace fa
