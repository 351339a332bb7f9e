// Shared by the matrix units: operand words and conversion from pairs of fp32.
#pragma once

#include "device/arch/choice.hpp"
#include "device/arch/compiler.hpp"
#include "device/arch/current.hpp"
#include "device/arch/device.hpp"
#include "device/arch/dtype.hpp"
#include "device/mma/layout.hpp"

namespace fa {

typedef _Float16 f16x2 __attribute__((ext_vector_type(2)));
typedef _Float16 f16x8 __attribute__((ext_vector_type(8)));
typedef __bf16 bf16x2 __attribute__((ext_vector_type(2)));

// One matrix unit of an arch for one dtype: its Layout, and the types A (words of one lane's run), B (one A
// per column) and C (fp32).
//    multiply(c, a, b)
//    settle(c)         call before and after ordinary arithmetic on a C that lives through a loop
//    pin(c)            keeps the compiler from moving the product to the use of its result
//    kFewInstructions  a step is short enough to unroll loops of steps
//    kTop, kHighest    FoldedSoftmax's: a row's largest P after a rise, before truncation, and the limit of a
//    lane's
//                      sum of P over a tile, or, with kChecked, of kChecked of them
//    kMultipliesFp32   has an fp32 matrix instruction, and so broadcast_rows and broadcast_sums
template <MatrixUnit kUnit, Gfx kGfx, DType kDType>
struct Unit;

// Bytes of an element of an operand.
template <class Unit>
inline constexpr int kOperandBytes = sizeof(typename Unit::A) / Unit::kRun;

template <Gfx kGfx, DType kDType>
using UnitOf = Unit<traits(kGfx).unit, kGfx, kDType>;

// Likewise with operands of fp8.
template <MatrixUnit kUnit, Gfx kGfx>
struct Fp8Unit;

// c + a * b by two products, of the halves of a lane's run.
template <class C, class A, class B, class Product>
FA_DEVICE void multiply_halves(C& c, A a, const B& b, Product product) {
  c = product(c, a.lo, b.column[0].lo);
  c = product(c, a.hi, b.column[0].hi);
}

// Likewise with steps of fewer columns.
template <MatrixUnit kUnit, Gfx kGfx, DType kDType>
struct NarrowUnit;

// Likewise with LoneLayout.
template <Gfx kGfx, DType kDType>
struct LoneUnit;

// Whether a lane has all columns.
template <class Unit>
inline constexpr bool kLone = Unit::kPeers == Unit::kWave - 1;

// Its steps of O^T += V^T * P^T: 16 lanes have the rows, and each of four such groups has other keys. So a
// lane's C is a part of the sum.
template <class Unit>
struct LoneValues : Unit {
  static constexpr int kM = 16, kK = Unit::kRun * Unit::kWave / kM;

  static constexpr int a_row(int lane) { return lane % kM; }
  static constexpr int run_begin(int lane) { return lane / kM * Unit::kRun; }
  static constexpr int c_row(int lane, int) { return lane % kM; }
};
template <class Unit>
using ValuesOf = Choice<kLone<Unit>, LoneValues<Unit>, Unit>;

// The matrix unit of a kernel.
template <Gfx kGfx, DType kDType, bool kFp8, bool kNarrowSteps = false, bool kOwnKeys = false>
struct UnitFor {
  using Type = UnitOf<kGfx, kDType>;
};
template <Gfx kGfx, DType kDType, bool kOwnKeys>
struct UnitFor<kGfx, kDType, false, true, kOwnKeys> {
  static_assert(traits(kGfx).unit == MatrixUnit::mfma || traits(kGfx).unit == MatrixUnit::dot2 ||
                    traits(kGfx).unit == MatrixUnit::dot2_64,
                "tiles.toml: narrow_steps are of MFMA and the dot products");
  using Type = Choice<kOwnKeys && traits(kGfx).unit == MatrixUnit::dot2_64, LoneUnit<kGfx, kDType>,
                      NarrowUnit<traits(kGfx).unit, kGfx, kDType>>;
};
template <Gfx kGfx, DType kDType, bool kOwnKeys>
struct UnitFor<kGfx, kDType, true, false, kOwnKeys> {
  static_assert(traits(kGfx).fp8 != Fp8::none, "table.toml: the ISA has no products of fp8");
  using Type = Fp8Unit<traits(kGfx).unit, kGfx>;
};

// Rounds two fp32 to two 16-bit elements, to nearest even. `low` is first in memory.
template <DType kDType>
FA_DEVICE uint32_t pack(float low, float high) {
  if constexpr (kDType == DType::fp16) {
    return __builtin_bit_cast(uint32_t, f16x2{static_cast<_Float16>(low), static_cast<_Float16>(high)});
  } else {
    return __builtin_bit_cast(uint32_t, bf16x2{static_cast<__bf16>(low), static_cast<__bf16>(high)});
  }
}

// As `pack` of fp16, for products: each is rounded in one instruction. Opaque, because the compiler would
// form pairs of fp32 and convert them.
FA_DEVICE uint32_t pack_products(float low, float high) {
  const _Float16 first = here(static_cast<_Float16>(low));
  return __builtin_bit_cast(uint32_t, f16x2{first, static_cast<_Float16>(high)});
}

// `cut` truncates two fp32 to two 16-bit elements in one instruction. Multiply values by kCutGain first: then
// truncation has no bias (the gain is the mean loss over all mantissas), the error is at most 1.3 times that
// of rounding, and 1 stays 1.
template <DType kDType>
inline constexpr float kCutGain = kDType == DType::fp16 ? 1.00035f : 1.00282f;

// Whether the matrix unit takes elements below 2^-14 as zero. Kernels then multiply their own values by a
// power of two, and divide the sums by it. Inputs are unchanged.
template <Gfx kGfx, DType kDType>
inline constexpr bool kFlushes = traits(kGfx).flushes_denormals && kDType == DType::fp16;

// One truncated element as fp32.
template <DType kDType>
FA_DEVICE float cut_one(float value) {
  constexpr uint32_t kKept = kDType == DType::fp16 ? 0xffffe000 : 0xffff0000;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, value) & kKept);
}

template <DType kDType>
FA_DEVICE uint32_t cut(float low, float high) {
  if constexpr (kDType == DType::fp16) {
    return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(low, high));
  } else {
    return __builtin_amdgcn_perm(__builtin_bit_cast(uint32_t, high), __builtin_bit_cast(uint32_t, low),
                                 0x07060302);
  }
}

// As `pack`, for values whose NaNs may be lost. bf16 then takes 5 instructions instead of 11, or one where
// available.
template <DType kDType>
FA_DEVICE uint32_t pack_numbers(float low, float high) {
  if constexpr (kDType == DType::fp16 || traits(kCurrentGfx).bf16_pairs) {
    return pack<kDType>(low, high);
  } else {
    const auto rounded = [](float value) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, value);
      return bits + (bits >> 16 & 1) + 0x7fff;
    };
    return __builtin_amdgcn_perm(rounded(high), rounded(low), 0x07060302);
  }
}

}  // namespace fa
