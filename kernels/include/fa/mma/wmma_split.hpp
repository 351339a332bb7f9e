// The matrix unit of RDNA4: v_wmma_f32_16x16x16, each half-wave with half of an operand's k.
#pragma once

#include "fa/mma/unit.hpp"

namespace fa {

typedef short s16x8 __attribute__((ext_vector_type(8)));

template <Gfx kGfx, DType kDType>
struct Unit<MatrixUnit::wmma_split, kGfx, kDType> : Layout<MatrixUnit::wmma_split> {
  using A = u32x4;
  struct B {
    A column[1];
  };
  using C = f32x8;

  static constexpr bool kPackedFp32 = traits(kGfx).packed_fp32;
  static constexpr bool kFewInstructions = true, kMultipliesFp32 = false;

  FA_DEVICE static void multiply(C& c, A a, const B& b) {
    if constexpr (kDType == DType::fp16) {
      c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(f16x8, a),
                                                           __builtin_bit_cast(f16x8, b.column[0]), c);
    } else {
      c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(s16x8, a),
                                                            __builtin_bit_cast(s16x8, b.column[0]), c);
    }
  }

  FA_DEVICE static void multiply_first(C& c, A a, const B& b) { multiply(c, a, b); }

  // Zeros, each written once: the compiler writes one vector of them, and copies it.
  FA_DEVICE static C zero() {
    C c;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float z;
      asm volatile("v_mov_b32 %0, 0" : "=v"(z));
      c[r] = z;
    }
    return c;
  }

  FA_DEVICE static void settle(C& c) { hold(c); }
  FA_DEVICE static void hold(C& c) { c = here(c); }
  FA_DEVICE static void pin(C& c) { c = here(c); }

  static constexpr float kGain = kCutGain<kDType>;
  static constexpr DType kCut = kDType;
  FA_DEVICE static uint32_t pack_p(float low, float high) { return cut<kDType>(low, high); }
};

}  // namespace fa
