// The matrix unit of RDNA4: v_wmma_f32_16x16x16, with half of an operand's k in each half-wave.
#pragma once

#include "device/mma/wmma_unit.hpp"

namespace fa {

typedef short s16x8 __attribute__((ext_vector_type(8)));

template <Gfx kGfx, DType kDType>
struct Unit<MatrixUnit::wmma_split, kGfx, kDType> : WmmaUnit<MatrixUnit::wmma_split, kGfx, kDType, u32x4> {
  using Base = WmmaUnit<MatrixUnit::wmma_split, kGfx, kDType, u32x4>;
  using typename Base::A, typename Base::B, typename Base::C;

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
};

}  // namespace fa
