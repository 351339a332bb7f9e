// What compilers get wrong, by name. Kernels work around it. The static checks find what is missing.
#pragma once

#include "device/arch/device.hpp"
#include "device/arch/traits.hpp"

namespace fa {

#if defined(__clang_major__) && __clang_major__ < 22
inline constexpr bool kBeforeClang22 = true;
#else
inline constexpr bool kBeforeClang22 = false;
#endif

// A matrix instruction's result is placed over an operand that the instruction still reads when it starts to
// write.
inline constexpr bool kOverlapsOperands = kBeforeClang22;

// Values for rare use, derived from a kernel's arguments, are computed before its loop and kept through it.
inline constexpr bool kKeepsRareValues = kBeforeClang22;

// Waits for the wave's LDS operations. LLVM 22 misses this wait behind an inner loop with stores at its end.
template <Gfx kGfx>
FA_DEVICE void missed_lds_wait() {
  if constexpr (traits(kGfx).lds_counter) {
    asm volatile("s_wait_dscnt 0x0" ::: "memory");
  } else {
    asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
  }
}

// Waits until earlier LDS and vector memory instructions have read EXEC. LLVM misses s_and_saveexec after
// them.
template <Gfx kGfx>
FA_DEVICE void missed_operand_wait() {
  if constexpr (traits(kGfx).late_operands) asm volatile("s_waitcnt_depctr 0xffe3" ::: "memory");
}

}  // namespace fa
