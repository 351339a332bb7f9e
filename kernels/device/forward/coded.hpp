// Decode over a cache of 8 bits an element: the loop of decode, with all its features.
#pragma once

#include "device/forward/forward.hpp"

namespace fa {

// A call's arguments begin with those of decode.
#define FA_DECODE_8BIT(name, dtype, head_dim)                                                               \
  FA_KERNEL(forward, decode_8bit, dtype, head_dim)                                                          \
  name(const fa::CodedParams params) {                                                                      \
    using Plain = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, fa::Op::decode_8bit>;                  \
    using Featured = fa::Block<fa::kCurrentGfx, dtype, head_dim, true, fa::Op::decode_8bit>;                \
    __attribute__((                                                                                         \
        shared,                                                                                             \
        aligned(Plain::kLdsAlignment))) static char lds[fa::larger(Plain::kLdsBytes, Featured::kLdsBytes)]; \
    if (!fa::featured(params.fwd)) {                                                                        \
      fa::run_forward<Plain>(params.fwd, (fa::LdsBytes)lds);                                                \
    } else {                                                                                                \
      fa::run_forward<Featured>(fa::reloaded(fa::kernel_arguments()), (fa::LdsBytes)lds);                   \
      asm volatile("; keeps the ends of the two apart, which must not share registers");                    \
    }                                                                                                       \
  }

}  // namespace fa
