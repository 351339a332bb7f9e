// Shared by the matrix units of RDNA 3 and 4: all except the instruction and its operand size.
#pragma once

#include "device/mma/unit.hpp"

namespace fa {

template <MatrixUnit kUnit, Gfx kGfx, DType kDType, class Operand>
struct WmmaUnit : Layout<kUnit> {
  using A = Operand;
  struct B {
    A column[1];
  };
  using C = f32x8;

  static constexpr bool kPackedFp32 = traits(kGfx).packed_fp32;
  static constexpr bool kFewInstructions = true, kMultipliesFp32 = false;

  // Zeros, each written once. The compiler would write one vector of zeros and copy it.
  FA_DEVICE static C zero() {
    C c;
#pragma unroll
    for (int r = 0; r < Layout<kUnit>::kRows; ++r) {
      float z;
      asm volatile("v_mov_b32 %0, 0" : "=v"(z));
      c[r] = z;
    }
    return c;
  }

  FA_DEVICE static void settle(C& c) { hold(c); }
  FA_DEVICE static void hold(C& c) { c = here(c); }
  FA_DEVICE static void pin(C& c) { c = here(c); }

  static constexpr float kGain = kCutGain<kDType>, kTop = 1, kHighest = 1024;
  static constexpr int kChecked = 0;
  static constexpr DType kCut = kDType;
  FA_DEVICE static uint32_t pack_p(float low, float high) { return cut<kDType>(low, high); }
};

}  // namespace fa
