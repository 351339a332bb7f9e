// The matrix unit of CDNA with operands of fp8: v_mfma_f32_32x32x16_fp8_fp8. A lane's run of 16 elements
// takes two instructions of 8 elements. Both operands use the same order of k, so any order is correct.
#pragma once

#include "device/mma/mfma.hpp"

namespace fa {

template <Gfx kGfx>
struct Fp8Unit<MatrixUnit::mfma, kGfx> : Fp8Layout<MatrixUnit::mfma> {
  using Wide = Unit<MatrixUnit::mfma, kGfx, DType::bf16>;
  using A = u32x4;
  using B = typename Wide::B;
  using C = f32x16;
  static constexpr bool kFewInstructions = true, kMultipliesFp32 = true;
  static constexpr bool kPackedFp32 = Wide::kPackedFp32;
  static constexpr int kParts = 2;
  static constexpr float kOutUnit = 1.0f / 64;  // of P as below

  // A row's largest P is 0.5 to 1.87, and 2^7 times that in e4m3fnuz, whose numbers end at 240: so P in fp16
  // has its exponent and the upper bits of its mantissa in the bits of the code, also where both are
  // subnormal.
  static constexpr float kGain = 0.5f;
  static constexpr int kRaise = 0;
  static constexpr float kSlack = 1.9f;

  FA_DEVICE static void multiply(C& c, A a, const B& b) {
    c = eight(c, a.lo, b.column[0].lo);
    c = eight(c, a.hi, b.column[0].hi);
  }
  FA_DEVICE static void multiply_half(C& c, A a, const B& b, int half) {
    c = half == 0 ? eight(c, a.lo, b.column[0].lo) : eight(c, a.hi, b.column[0].hi);
  }

  // Four elements in two steps: two in fp16, then the codes of these and of two more, rounded. Two
  // conversions to fp8 take more time, and no matrix instruction runs beside them.
  FA_DEVICE static uint32_t pack_p(float low, float high) { return cut<DType::fp16>(low, high); }
  FA_DEVICE static uint32_t join_p(uint32_t first, uint32_t second) {
    constexpr uint32_t kHalf = 0x00400040, kUpper = 0x07050301;
    return __builtin_amdgcn_perm((second + kHalf) << 1, (first + kHalf) << 1, kUpper);
  }

  FA_DEVICE static void multiply_first(C& c, A a, const B& b) { multiply(c, a, b); }
  FA_DEVICE static void settle(C& c) { Wide::settle(c); }
  FA_DEVICE static void hold(C&) {}

 private:
  FA_DEVICE static C eight(C c, u32x2 a, u32x2 b) {
    return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
  }
};

}  // namespace fa
