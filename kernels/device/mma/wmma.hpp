// The matrix unit of RDNA3: v_wmma_f32_16x16x16, with operands replicated in both half-waves.
#pragma once

#include "device/mma/wmma_unit.hpp"

namespace fa {

typedef _Float16 f16x16 __attribute__((ext_vector_type(16)));
typedef short s16x16 __attribute__((ext_vector_type(16)));

template <Gfx kGfx, DType kDType>
struct Unit<MatrixUnit::wmma, kGfx, kDType> : WmmaUnit<MatrixUnit::wmma, kGfx, kDType, u32x8> {
  using Base = WmmaUnit<MatrixUnit::wmma, kGfx, kDType, u32x8>;
  using typename Base::A, typename Base::B, typename Base::C;

  FA_DEVICE static void multiply(C& c, A a, const B& b) {
    if constexpr (kDType == DType::fp16) {
      c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(f16x16, a),
                                                     __builtin_bit_cast(f16x16, b.column[0]), c);
    } else {
      c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(s16x16, a),
                                                      __builtin_bit_cast(s16x16, b.column[0]), c);
    }
  }

  FA_DEVICE static void multiply_first(C& c, A a, const B& b) { multiply(c, a, b); }
};

}  // namespace fa
