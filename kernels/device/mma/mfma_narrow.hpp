// The matrix unit of CDNA with steps of 16 columns, for few queries: v_mfma_f32_16x16xK of fp16. A lane's run
// of 8 elements takes one instruction or two, in any order of k.
#pragma once

#include "device/mma/mfma.hpp"

namespace fa {

template <Gfx kGfx>
struct NarrowUnit<MatrixUnit::mfma, kGfx, DType::fp16> : NarrowLayout<MatrixUnit::mfma> {
  using Wide = Unit<MatrixUnit::mfma, kGfx, DType::fp16>;
  using A = u32x4;
  struct B {
    A column[1];
  };
  using C = f32x4;
  static constexpr bool kFewInstructions = true, kMultipliesFp32 = false;
  static constexpr bool kPackedFp32 = traits(kGfx).packed_fp32;
  static constexpr float kGain = Wide::kGain, kSlack = Wide::kSlack;
  static constexpr int kRaise = Wide::kRaise;
  FA_DEVICE static uint32_t pack_p(float low, float high) { return Wide::pack_p(low, high); }

  FA_DEVICE static void multiply(C& c, A a, const B& b) {
    if constexpr (Wide::kParts == 1) {
      c = __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(f16x8, a),
                                                 __builtin_bit_cast(f16x8, b.column[0]), c, 0, 0, 0);
    } else {
      multiply_halves(c, a, b, [](C sum, u32x2 first, u32x2 second) {
        C result = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(f16x4, first),
                                                         __builtin_bit_cast(f16x4, second), sum, 0, 0, 0);
        // Or the compiler may place it over a part of `sum`.
        if constexpr (traits(kGfx).separate_acc_vgprs) asm volatile("" : "+a"(result) : "a"(sum));
        return result;
      });
    }
  }
  FA_DEVICE static void multiply_first(C& c, A a, const B& b) { multiply(c, a, b); }

  // As in Unit.
  FA_DEVICE static void settle(C& c) {
    if constexpr (traits(kGfx).separate_acc_vgprs) {
      asm volatile("" : "+a"(c));
    } else {
      asm volatile("" : "+v"(c));
    }
  }
  FA_DEVICE static void hold(C&) {}
  FA_DEVICE static void pin(C& c) { settle(c); }
};

}  // namespace fa
