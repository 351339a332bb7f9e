// Matrix steps on the VALU: each lane multiplies its own row and columns. fp16 uses v_dot2_f32_f16, or two
// v_fma_mix_f32. bf16 lacks such instructions: a pair is unpacked to fp32 (exactly) and takes two FMAs. int8
// uses v_dot4_i32_i8.
#pragma once

#include "device/mma/unit.hpp"

namespace fa {

template <class Places, Gfx kGfx, DType kDType>
struct Dot2Unit : Places {
  static constexpr int kColumns = Places::kColumns;
  using A = u32x4;
  struct B {
    A column[kColumns];
  };
  typedef float C __attribute__((ext_vector_type(kColumns)));

  static constexpr bool kPackedFp32 = traits(kGfx).packed_fp32;
  static constexpr bool kPackedDots = kDType == DType::fp16 && traits(kGfx).packed_dots;
  static constexpr bool kFewInstructions = kPackedDots, kMultipliesFp32 = false;

  FA_DEVICE static void multiply(C& c, A a, const B& b) {
#pragma unroll
    for (int word = 0; word < 4; ++word) {
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        c[column] = dot(a[word], b.column[column][word], c[column]);
      }
    }
  }

  // For a `c` shared by the starts of several products. v_dot2c adds to its own register, so the compiler
  // would copy c first. v_dot2 needs no copy.
  FA_DEVICE static void multiply_first(C& c, A a, const B& b) {
#pragma unroll
    for (int column = 0; column < kColumns; ++column)
      c[column] = dot_apart(a[0], b.column[column][0], c[column]);
#pragma unroll
    for (int word = 1; word < 4; ++word) {
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        c[column] = dot(a[word], b.column[column][word], c[column]);
      }
    }
  }

  // Of int8, twice as many. The bits of c are sums in int32.
  FA_DEVICE static void multiply_int8(C& c, A a, const B& b) { multiply_words_int8<0>(c, a, b); }

  // Likewise. All of c is the same number, in a scalar register.
  FA_DEVICE static void multiply_first_int8(C& c, A a, const B& b) {
    const float start = c[0];
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      float sum;
      asm("v_dot4_i32_i8 %0, %1, %2, %3" : "=v"(sum) : "v"(a[0]), "v"(b.column[column][0]), "s"(start));
      c[column] = sum;
    }
    multiply_words_int8<1>(c, a, b);
  }

  FA_DEVICE static void settle(C&) {}
  FA_DEVICE static void hold(C&) {}
  FA_DEVICE static void pin(C& c) { c = here(c); }

  static constexpr float kGain = kCutGain<kDType>, kTop = 1, kHighest = 1024;
  static constexpr int kChecked = 0;
  static constexpr DType kCut = kDType;
  FA_DEVICE static uint32_t pack_p(float low, float high) { return cut<kDType>(low, high); }

 private:
  template <int kFirst>
  FA_DEVICE static void multiply_words_int8(C& c, A a, const B& b) {
#pragma unroll
    for (int word = kFirst; word < 4; ++word) {
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        const auto k = static_cast<int>(a[word]), q = static_cast<int>(b.column[column][word]);
        const float sum = c[column];
        c[column] =
            __builtin_bit_cast(float, __builtin_amdgcn_sdot4(k, q, __builtin_bit_cast(int, sum), false));
      }
    }
  }
  FA_DEVICE static float dot(uint32_t a, uint32_t b, float sum) {
    if constexpr (kPackedDots) {
      return __builtin_amdgcn_fdot2(__builtin_bit_cast(f16x2, a), __builtin_bit_cast(f16x2, b), sum, false);
    } else {
      return __builtin_fmaf(high(a), high(b), __builtin_fmaf(low(a), low(b), sum));
    }
  }
  FA_DEVICE static float dot_apart(uint32_t a, uint32_t b, float sum) {
    if constexpr (kPackedDots) {
      float result;
      asm("v_dot2_f32_f16 %0, %1, %2, %3" : "=v"(result) : "v"(a), "v"(b), "v"(sum));
      return result;
    } else {
      return dot(a, b, sum);
    }
  }
  FA_DEVICE static float low(uint32_t pair) {
    if constexpr (kDType == DType::fp16) return float(__builtin_bit_cast(f16x2, pair)[0]);
    return __builtin_bit_cast(float, pair << 16);
  }
  FA_DEVICE static float high(uint32_t pair) {
    if constexpr (kDType == DType::fp16) return float(__builtin_bit_cast(f16x2, pair)[1]);
    return __builtin_bit_cast(float, pair & 0xffff0000u);
  }
};

template <Gfx kGfx, DType kDType>
struct Unit<MatrixUnit::dot2, kGfx, kDType> : Dot2Unit<Layout<MatrixUnit::dot2>, kGfx, kDType> {};
template <Gfx kGfx, DType kDType>
struct Unit<MatrixUnit::dot2_64, kGfx, kDType> : Dot2Unit<Layout<MatrixUnit::dot2_64>, kGfx, kDType> {};
template <Gfx kGfx, DType kDType>
struct NarrowUnit<MatrixUnit::dot2, kGfx, kDType> : Dot2Unit<NarrowLayout<MatrixUnit::dot2>, kGfx, kDType> {};
template <Gfx kGfx, DType kDType>
struct NarrowUnit<MatrixUnit::dot2_64, kGfx, kDType>
    : Dot2Unit<NarrowLayout<MatrixUnit::dot2_64>, kGfx, kDType> {};
template <Gfx kGfx, DType kDType>
struct LoneUnit : Dot2Unit<LoneLayout, kGfx, kDType> {};

}  // namespace fa
