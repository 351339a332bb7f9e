// The matrix unit of RDNA4 with operands of fp8: v_wmma_f32_16x16x16_fp8_fp8. A lane's run of 16 elements
// takes two instructions of 8 elements. Both operands use the same order of k, so any order is correct.
#pragma once

#include "device/mma/wmma_split.hpp"

namespace fa {

template <Gfx kGfx>
struct Fp8Unit<MatrixUnit::wmma_split, kGfx> : Fp8Layout<MatrixUnit::wmma_split> {
  using Wide = Unit<MatrixUnit::wmma_split, kGfx, DType::bf16>;
  using A = u32x4;
  using B = typename Wide::B;
  using C = f32x8;
  static constexpr bool kFewInstructions = true, kMultipliesFp32 = false;
  static constexpr bool kPackedFp32 = Wide::kPackedFp32;
  static constexpr float kOutUnit = 1;

  // A row's largest P is 56 to 448, the largest number of e4m3fn, and eight of them add up to no more after a
  // rise of the maximum (FoldedSoftmax). With four and 112, too many tiles are computed again.
  static constexpr float kGain = 1, kTop = 56, kHighest = 456;  // 464 and more becomes NaN
  static constexpr int kChecked = 8;

  FA_DEVICE static C zero() { return Wide::zero(); }
  FA_DEVICE static void settle(C& c) { Wide::settle(c); }
  FA_DEVICE static void hold(C& c) { Wide::hold(c); }
  FA_DEVICE static void pin(C& c) { Wide::pin(c); }

  FA_DEVICE static void multiply(C& c, A a, const B& b) { multiply_halves(c, a, b, eight); }
  FA_DEVICE static void multiply_first(C& c, A a, const B& b) { multiply(c, a, b); }

  // Of int8. The bits of c are sums in int32.
  FA_DEVICE static void multiply_int8(C& c, A a, const B& b) {
    c = eight_int8(c, a.lo, b.column[0].lo);
    c = eight_int8(c, a.hi, b.column[0].hi);
  }

  // The codes of four elements, rounded.
  FA_DEVICE static uint32_t pack_four(float first, float second, float third, float fourth) {
    const int low = __builtin_amdgcn_cvt_pk_fp8_f32(first, second, anything<int>(), false);
    return static_cast<uint32_t>(__builtin_amdgcn_cvt_pk_fp8_f32(third, fourth, low, true));
  }

 private:
  typedef int i32x2 __attribute__((ext_vector_type(2)));
  typedef int i32x8 __attribute__((ext_vector_type(8)));

  FA_DEVICE static C eight_int8(C c, u32x2 a, u32x2 b) {
    return __builtin_bit_cast(C, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(
                                     true, __builtin_bit_cast(i32x2, a), true, __builtin_bit_cast(i32x2, b),
                                     __builtin_bit_cast(i32x8, c), false));
  }
  FA_DEVICE static C eight(C c, u32x2 a, u32x2 b) {
    return __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(__builtin_bit_cast(i32x2, a),
                                                                __builtin_bit_cast(i32x2, b), c);
  }
};

}  // namespace fa
