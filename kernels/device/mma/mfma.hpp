// The matrix unit of CDNA: v_mfma_f32_32x32xK. A lane's run of 8 elements takes one instruction of 8
// elements, two of 4 or four of 2: the longest available for the dtype. Both operands use the same order of
// k, so any order is correct.
#pragma once

#include "device/mma/unit.hpp"

namespace fa {

typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef short s16x2 __attribute__((ext_vector_type(2)));
typedef short s16x4 __attribute__((ext_vector_type(4)));

template <Gfx kGfx, DType kDType>
struct Unit<MatrixUnit::mfma, kGfx, kDType> : Layout<MatrixUnit::mfma> {
  using A = u32x4;
  struct B {
    A column[1];
  };
  using C = f32x16;
  static constexpr bool kFewInstructions = true, kMultipliesFp32 = true;

  static constexpr bool kPackedFp32 = traits(kGfx).packed_fp32;
  // Contraction length of the longest instruction.
  static constexpr int kLongest = kDType == DType::fp16 ? traits(kGfx).fp16_k : traits(kGfx).bf16_k;
  // Parts of a step: two halves, or one if the step is a single instruction.
  static constexpr int kParts = kLongest == kK ? 1 : 2;
  // Separate AccVGPRs hold results only.
  static constexpr bool kMustKeepApart = kOverlapsOperands && !traits(kGfx).separate_acc_vgprs;

  FA_DEVICE static void multiply(C& c, A a, const B& b) {
    if constexpr (kLongest == kK) {
      c = eight(c, a, b.column[0]);
    } else if constexpr (kLongest == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c = two(c, a[i], b.column[0][i]);
    } else {
      c = four(c, a.lo, b.column[0].lo);
      c = four(c, a.hi, b.column[0].hi);
    }
  }

  // One half of `multiply`.
  FA_DEVICE static void multiply_half(C& c, A a, const B& b, int half) {
    static_assert(kParts == 2, "each would take as long as the whole step");
    if constexpr (kLongest == 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) c = two(c, a[half * 2 + i], b.column[0][half * 2 + i]);
    } else {
      c = half == 0 ? four(c, a.lo, b.column[0].lo) : four(c, a.hi, b.column[0].hi);
    }
  }

  // Call after the first part of a product with a zero C: keeps the operands alive.
  FA_DEVICE static void keep_apart(C& c, const A& a, const B& b) {
    if constexpr (kMustKeepApart && kParts == 1) {
      asm volatile("" : "+v"(c) : "v"(a), "v"(b.column[0]));
    } else if constexpr (kMustKeepApart) {
      asm volatile("" : "+v"(c) : "v"(a.lo), "v"(b.column[0].lo));
    }
  }

  static constexpr float kGain = kCutGain<kDType>;
  // log2 of P's enlargement, and of a further rise. P is at most 2^15.
  static constexpr int kRaise = kFlushes<kGfx, kDType> ? 7 : 0;
  static constexpr float kSlack = 8;
  FA_DEVICE static uint32_t pack_p(float low, float high) { return cut<kDType>(low, high); }

  // Keeps `c` in the registers of matrix results. Emits no code. With separate AccVGPRs and ordinary
  // arithmetic on c in a loop, the compiler would otherwise keep c in ordinary registers and copy all 32 or
  // 64 of them back and forth for every tile.
  FA_DEVICE static void settle(C& c) {
    if constexpr (traits(kGfx).separate_acc_vgprs) {
      asm volatile("" : "+a"(c));
    } else {
      asm volatile("" : "+v"(c));
    }
  }
  // Makes `c` undefined. Emits no code.
  FA_DEVICE static void forget(C& c) {
    if constexpr (traits(kGfx).separate_acc_vgprs) {
      asm volatile("" : "=a"(c));
    } else {
      asm volatile("" : "=v"(c));
    }
  }
  FA_DEVICE static void multiply_first(C& c, A a, const B& b) { multiply(c, a, b); }

  // Zeros, each written by its own instruction. The compiler would copy one zero between accumulators through
  // ordinary registers. It is unaware of these writes, so the wait states are included.
  FA_DEVICE static C zero() {
    C c = {};
    if constexpr (traits(kGfx).separate_acc_vgprs) {
      float z[kRows];
#define FA_ZERO(r) "v_accvgpr_write_b32 %" #r ", 0\n\t"
      asm volatile(FA_ZERO(0) FA_ZERO(1) FA_ZERO(2) FA_ZERO(3) FA_ZERO(4) FA_ZERO(5) FA_ZERO(6) FA_ZERO(7)
                       FA_ZERO(8) FA_ZERO(9) FA_ZERO(10) FA_ZERO(11) FA_ZERO(12) FA_ZERO(13) FA_ZERO(14)
                           FA_ZERO(15) "s_nop 2"
                   : "=a"(z[0]), "=a"(z[1]), "=a"(z[2]), "=a"(z[3]), "=a"(z[4]), "=a"(z[5]), "=a"(z[6]),
                     "=a"(z[7]), "=a"(z[8]), "=a"(z[9]), "=a"(z[10]), "=a"(z[11]), "=a"(z[12]), "=a"(z[13]),
                     "=a"(z[14]), "=a"(z[15]));
#undef FA_ZERO
#pragma unroll
      for (int r = 0; r < kRows; ++r) c[r] = z[r];
    }
    return c;
  }

  // A C with `value` of lane l in row a_row(l), in all columns. Exact, without LDS.
  FA_DEVICE static C broadcast_rows(float value, int lane, C zeros = C{}) {
    const uint32_t first = static_cast<uint32_t>(lane / kM) - 1;  // all ones in lanes with the first k
    const float a = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, value) & first);
    const float b = __builtin_bit_cast(float, 0x3f800000u & first);
    C result = __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, zeros, 0, 0, 0);
    if constexpr (kMustKeepApart) asm volatile("" : "+v"(result) : "v"(a), "v"(b));
    return result;
  }

  // A C with the sum of `value` over the two lanes of row a_row(lane), in all columns.
  FA_DEVICE static C broadcast_sums(float value, C zeros = C{}) {
    const float one = 1;
    C result = __builtin_amdgcn_mfma_f32_32x32x2f32(value, one, zeros, 0, 0, 0);
    if constexpr (kMustKeepApart) asm volatile("" : "+v"(result) : "v"(value), "v"(one));
    return result;
  }

  // broadcast_rows for one half of the wave's lanes, in half the time. The value is split into three bf16,
  // which together hold all its bits. Adds `more`.
  FA_DEVICE static C broadcast_half(float value, int lane, int half, C more = C{}) {
    const auto cut = [](float x) { return cut_one<DType::bf16>(x); };
    const auto word = [](float low, float high) { return fa::cut<DType::bf16>(low, high); };
    const float high = cut(value);
    const float rest = __builtin_isinf(value) ? 0 : value - high;
    const float middle = cut(rest);
    const uint32_t all = static_cast<uint32_t>(lane / kM) - (half == 0 ? 1u : 0u);
    const uint32_t kept = half == 0 ? all : ~all + 1;
    constexpr uint32_t kOnes = 0x3f803f80;
    return four_bf16({word(high, middle) & kept, word(rest - middle, 0) & kept}, {kOnes, kOnes}, more);
  }

  // Zeros many registers with one instruction.
  FA_DEVICE static C zero_by_product() {
    const uint32_t nothing = here(0u);
    return four_bf16({nothing, nothing}, {nothing, nothing}, C{});
  }

  FA_DEVICE static void hold(C&) {}
  FA_DEVICE static void pin(C& c) { settle(c); }

 private:
  // By value: __builtin_bit_cast of a vector element reads the vector's first element.
  FA_DEVICE static C two(C c, uint32_t a, uint32_t b) {
    return __builtin_amdgcn_mfma_f32_32x32x4bf16(__builtin_bit_cast(s16x2, a), __builtin_bit_cast(s16x2, b),
                                                 c, 0, 0, 0);
  }
  FA_DEVICE static C four(C c, u32x2 a, u32x2 b) {
    if constexpr (kDType == DType::fp16) {
      return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(f16x4, a), __builtin_bit_cast(f16x4, b),
                                                  c, 0, 0, 0);
    } else {
      return four_bf16(a, b, c);
    }
  }
  FA_DEVICE static C four_bf16(u32x2 a, u32x2 b, C c) {
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(s16x4, a),
                                                    __builtin_bit_cast(s16x4, b), c, 0, 0, 0);
  }
  FA_DEVICE static C eight(C c, A a, A b) {
    if constexpr (kDType == DType::fp16) {
      return __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(f16x8, a),
                                                    __builtin_bit_cast(f16x8, b), c, 0, 0, 0);
    } else {
      return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(bf16x8, a),
                                                     __builtin_bit_cast(bf16x8, b), c, 0, 0, 0);
    }
  }
};

}  // namespace fa
