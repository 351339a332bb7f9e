// The matrix unit of CDNA with operands of fp8. Both operands use the same order of k, so any order is
// correct.
#pragma once

#include "device/mma/mfma.hpp"

namespace fa {

// A lane's run of 16 elements takes two v_mfma_f32_32x32x16_fp8_fp8 of 8 elements.
template <Gfx kGfx>
struct ShortFp8Unit : Fp8Layout<MatrixUnit::mfma> {
  using Wide = Unit<MatrixUnit::mfma, kGfx, DType::bf16>;
  using A = u32x4;
  using B = typename Wide::B;
  using C = f32x16;
  static constexpr bool kFewInstructions = true, kMultipliesFp32 = true;
  static constexpr bool kPackedFp32 = Wide::kPackedFp32;
  static constexpr int kParts = 2;
  static constexpr float kOutUnit = 1.0f / 16;  // of P as below

  // A row's largest P is 0.125 to 1.87, and 2^7 times that in e4m3fnuz, whose numbers end at 240: so P in
  // fp16 has its exponent and the upper bits of its mantissa in the bits of the code, also where both are
  // subnormal. The least code is 2^-14 of the least such P, as in WideFp8Unit.
  static constexpr float kGain = 0.125f;
  static constexpr int kRaise = 0;
  static constexpr float kSlack = 3.9f;

  FA_DEVICE static void multiply(C& c, A a, const B& b) { multiply_halves(c, a, b, eight); }
  FA_DEVICE static void multiply_half(C& c, A a, const B& b, int half) {
    c = half == 0 ? eight(c, a.lo, b.column[0].lo) : eight(c, a.hi, b.column[0].hi);
  }

  // Of int8. The bits of c are sums in int32, from kCountFrom on.
  FA_DEVICE static void multiply_int8_half(C& c, A a, const B& b, int half) {
    c = half == 0 ? eight_int8(c, a.lo, b.column[0].lo) : eight_int8(c, a.hi, b.column[0].hi);
  }

  // Four elements in two steps: two in fp16, then the codes of these and of two more, rounded. Two
  // conversions to fp8 take more time, and no matrix instruction runs beside them.
  FA_DEVICE static uint32_t pack_p(float low, float high) { return cut<DType::fp16>(low, high); }
  FA_DEVICE static uint32_t join_p(uint32_t first, uint32_t second) {
    constexpr uint32_t kHalf = 0x00400040, kUpper = 0x07050301;
    return __builtin_amdgcn_perm((second + kHalf) << 1, (first + kHalf) << 1, kUpper);
  }

  // Likewise at once. The code of a P from 248 / 2^7 on, or of NaN, has a sign.
  static constexpr uint32_t kSigns = 0x80808080;
  FA_DEVICE static uint32_t pack_four(float first, float second, float third, float fourth) {
    return join_p(pack_p(first, second), pack_p(third, fourth));
  }

  FA_DEVICE static void multiply_first(C& c, A a, const B& b) { multiply(c, a, b); }
  FA_DEVICE static void settle(C& c) { Wide::settle(c); }
  FA_DEVICE static void hold(C&) {}

 private:
  FA_DEVICE static C eight(C c, u32x2 a, u32x2 b) {
    return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
  }
  FA_DEVICE static C eight_int8(C c, u32x2 a, u32x2 b) {
    typedef int i32x16 __attribute__((ext_vector_type(16)));
    return __builtin_bit_cast(
        C, __builtin_amdgcn_mfma_i32_32x32x16_i8(__builtin_bit_cast(long, a), __builtin_bit_cast(long, b),
                                                 __builtin_bit_cast(i32x16, c), 0, 0, 0));
  }
};

// A lane's run of 32 elements takes one instruction, v_mfma_f32_32x32x64_f8f6f4.
template <Gfx kGfx>
struct WideFp8Unit : WideFp8Layout {
  using Wide = Unit<MatrixUnit::mfma, kGfx, DType::bf16>;
  using A = u32x8;
  struct B {
    A column[1];
  };
  using C = f32x16;
  static constexpr bool kFewInstructions = true, kMultipliesFp32 = true;
  static constexpr bool kPackedFp32 = Wide::kPackedFp32;
  static constexpr int kParts = 1;

  static constexpr float kOutUnit = 1;

  // A row's largest P is 32 to 448, the largest number of e4m3fn, and eight of them add up to no more after a
  // rise of the maximum (EagerSoftmax). With four and 64, too many tiles are computed again.
  static constexpr float kGain = 1, kSlack = 0.8f, kHighest = 448;
  static constexpr int kRaise = 5, kChecked = 8;

  FA_DEVICE static void multiply(C& c, A a, const B& b) {
    typedef int i32x8 __attribute__((ext_vector_type(8)));
    c = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(
        __builtin_bit_cast(i32x8, a), __builtin_bit_cast(i32x8, b.column[0]), c, 0, 0, 0, 0, 0, 0);
  }
  FA_DEVICE static void multiply_first(C& c, A a, const B& b) { multiply(c, a, b); }

  // Of int8, half a run of elements. The bits of c are sums in int32.
  using Half = u32x4;
  FA_DEVICE static Half half_of(const B& b, int half) { return half == 0 ? b.column[0].lo : b.column[0].hi; }
  FA_DEVICE static void multiply_int8(C& c, Half a, Half b) {
    typedef int i32x4 __attribute__((ext_vector_type(4)));
    typedef int i32x16 __attribute__((ext_vector_type(16)));
    c = __builtin_bit_cast(
        C, __builtin_amdgcn_mfma_i32_32x32x32_i8(__builtin_bit_cast(i32x4, a), __builtin_bit_cast(i32x4, b),
                                                 __builtin_bit_cast(i32x16, c), 0, 0, 0));
  }
  // Likewise, of sums that start from an inline constant. The compiler would write it to registers.
  FA_DEVICE static void multiply_first_int8(C& c, Half a, Half b) {
    asm volatile("v_mfma_i32_32x32x32_i8 %0, %1, %2, 0.15915494" : "=&v"(c) : "v"(a), "v"(b));
  }

  // The codes of four elements, rounded.
  FA_DEVICE static uint32_t pack_four(float first, float second, float third, float fourth) {
    typedef short u16x2 __attribute__((ext_vector_type(2)));
    const u16x2 low = __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(anything<u16x2>(), first, second, 1.0f, false);
    return __builtin_bit_cast(uint32_t,
                              __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(low, third, fourth, 1.0f, true));
  }

  FA_DEVICE static void settle(C& c) { Wide::settle(c); }
  FA_DEVICE static void hold(C&) {}
};

template <Gfx kGfx>
struct Fp8Unit<MatrixUnit::mfma, kGfx>
    : Choice<traits(kGfx).fp8_k == WideFp8Layout::kK, WideFp8Unit<kGfx>, ShortFp8Unit<kGfx>> {};

}  // namespace fa
