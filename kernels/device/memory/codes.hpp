// Codes of 8 bits (CodeFormat), unpacked to fp16 on their way into LDS. Every finite code is exact.
//
// Four codes of a word become two words: elements 0 and 2, then elements 1 and 3. Operand B of the product has
// the same order (CodedQuery).
//
// Floating-point codes: a byte in the top half of 16 bits, moved right by `shift` below its sign, is an fp16
// number: exponent and mantissa of e4m3 have fp16's places with an exponent of 4 bits, so the number is the
// code's times 2^-8. Subnormal codes become subnormal fp16, exactly. e5m2 needs no shift: it is the top half
// of fp16. e4m3fnuz is read as e4m3fn, twice its value. Integers: 1024 + 128 + code is the fp16 number 0x6400 |
// (code + 128).
//
// Where the matrix unit may take fp16 subnormals as zero, e4m3 is multiplied by 2^8 here (kWhole): its least
// number is then 2^-9. Codes of e5m2 below 2^-14 still count as zero there, as fp16 elements do.
#pragma once

#include "device/arch/device.hpp"
#include "device/call/params.hpp"
#include "device/memory/swizzle.hpp"
#include "device/memory/view.hpp"
#include "device/mma/unit.hpp"

namespace fa {

typedef int16_t i16x2 __attribute__((ext_vector_type(2)));

template <class Codes>
struct Unpacked {
  typedef uint32_t Type __attribute__((ext_vector_type(sizeof(Codes) / 2)));
};

template <bool kWhole>
struct FloatCodes {
  uint32_t shift, kept, factor;  // twice 16 bits each

  template <class Codes>
  FA_DEVICE typename Unpacked<Codes>::Type operator()(Codes codes) const {
    typename Unpacked<Codes>::Type words;
#pragma unroll
    for (unsigned i = 0; i < sizeof(Codes) / 4; ++i) {
      words[i * 2] = pair(codes[i] << 8);
      words[i * 2 + 1] = pair(codes[i]);
    }
    return words;
  }

 private:
  FA_DEVICE uint32_t pair(uint32_t bytes) const {
    const i16x2 moved = __builtin_bit_cast(i16x2, bytes) >> __builtin_bit_cast(i16x2, shift);
    const uint32_t bits = __builtin_bit_cast(uint32_t, moved) & kept;
    if constexpr (!kWhole) return bits;
    return __builtin_bit_cast(uint32_t, __builtin_bit_cast(f16x2, bits) * __builtin_bit_cast(f16x2, factor));
  }
};

struct IntegerCodes {
  template <class Codes>
  FA_DEVICE typename Unpacked<Codes>::Type operator()(Codes codes) const {
    constexpr uint32_t kEven = 0x04020400, kOdd = 0x04030401;  // for v_perm: a byte of 0x64 above each code
    typename Unpacked<Codes>::Type words;
#pragma unroll
    for (unsigned i = 0; i < sizeof(Codes) / 4; ++i) {
      const uint32_t above = codes[i] ^ 0x80808080;
      words[i * 2] = less(__builtin_amdgcn_perm(0x64646464, above, kEven));
      words[i * 2 + 1] = less(__builtin_amdgcn_perm(0x64646464, above, kOdd));
    }
    return words;
  }

 private:
  FA_DEVICE static uint32_t less(uint32_t bits) {
    const f16x2 all = {static_cast<_Float16>(1152), static_cast<_Float16>(1152)};
    return __builtin_bit_cast(uint32_t, __builtin_bit_cast(f16x2, bits) - all);
  }
};

// How a call's codes are read. Wave-uniform.
template <bool kWhole>
struct Codes {
  bool integers;
  FloatCodes<kWhole> floats;
  float unit;  // of an unpacked code

  FA_DEVICE void begin(int32_t format) {
    const auto is = static_cast<CodeFormat>(format);
    const bool wide = is == CodeFormat::e5m2;
    integers = is == CodeFormat::int8;
    floats.shift = wide ? 0 : 0x00010001;
    floats.kept = wide ? 0xff00ff00 : 0xbf80bf80;
    floats.factor = wide ? 0x3c003c00 : 0x5c005c00;  // 1 or 2^8
    constexpr float kOf = kWhole ? 1 : 256;
    unit = integers || wide ? 1 : is == CodeFormat::e4m3fnuz ? kOf / 2 : kOf;
  }

  // Queries are converted by CodedQuery.
  FA_DEVICE u32x4 operator()(u32x4 words) const { return words; }
  FA_DEVICE bool exact() const { return true; }
};

// A stage of K or V whose elements are codes. The descales of its keys, if each has one, lie behind the tile.
template <class Stage, int kKeys, bool kWhole>
struct CodedStage : Stage {
  static constexpr int kDescales = Stage::Tile::kBytes;  // their place
  struct Tile : Stage::Tile {
    static constexpr int kBytes = kDescales + kKeys * static_cast<int>(sizeof(float));
  };
  using Lds = __attribute__((address_space(3))) float;

  float descale = 1;  // of key `thread`

  FA_DEVICE void store(LdsBytes tile, const Codes<kWhole>& codes, int thread) const {
    if (codes.integers) {
      const IntegerCodes unpack;
      Stage::store(tile, unpack, thread);
    } else {
      Stage::store(tile, codes.floats, thread);
    }
    if (thread < kKeys) ((Lds*)(tile + kDescales))[thread] = descale;
  }

  // Descales of four keys from key `first` on.
  FA_DEVICE static f32x4 descales(LdsBytes tile, int first) {
    return *(__attribute__((address_space(3))) f32x4*)(tile + kDescales + first * 4);
  }
};

// Queries of fp16 or bf16 as operand B of a product with codes: fp16, in the order of unpacked codes.
//
// bf16 is multiplied by a power of two of its row, so the row's largest finite magnitude is in [2^14, 2^15).
// Exact for elements from 2^-31 of it on (2^-28 where subnormals count as zero). Smaller ones are cut to
// multiples of 2^-39 of it, 2^-30 of what a bf16 next to the largest could lose.
template <class Unit, DType kDType, int kHeadDim>
struct CodedQuery {
  static_assert(Unit::kWave == 2 * Unit::kN, "two lanes find a row's largest magnitude");

  PackedView view;
  float power, inverse;  // of row `lane` % kN

  FA_DEVICE CodedQuery(const PackedView& view, int lane) : view(view), power(1), inverse(1) {
    if constexpr (kDType == DType::bf16) {
      // Magnitudes plus 0x80: those of inf and NaN are negative.
      i16x2 most = {0x80, 0x80};
#pragma unroll
      for (int i = 0; i < kHeadDim / 16; ++i) {
        const u32x4 words = view.template read<u32x4>(lane % Unit::kN, (i * 2 + lane / Unit::kN) * 16);
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const uint32_t pair = words[word] & 0x7fff7fff;
          most = __builtin_elementwise_max(most, __builtin_bit_cast(i16x2, pair) + static_cast<int16_t>(0x80));
        }
      }
      const float own = static_cast<float>(most.x > most.y ? most.x : most.y);
      const float row = across_lanes<Unit::kN>(own, lane, [](float a, float b) { return a > b ? a : b; });
      const int exponent = (static_cast<int>(row) >> 7) - 1;
      const int biased = exponent < 15 ? 253 : 268 - exponent;  // so both powers are normal
      power = __builtin_bit_cast(float, biased << 23);
      inverse = __builtin_bit_cast(float, (254 - biased) << 23);
    }
  }

  // 1 / power of any row.
  FA_DEVICE float inverse_of(int row) const { return from_lane(inverse, row); }

  template <class T>
  FA_DEVICE T read(int row, int byte) const {
    T words = view.template read<T>(row, byte);
    if constexpr (kDType == DType::bf16) {
      const float of_row = from_lane(power, row);
#pragma unroll
      for (unsigned i = 0; i < sizeof(T) / 4; ++i) {
        const uint32_t pair = words[i];
        words[i] = __builtin_bit_cast(
            uint32_t, __builtin_amdgcn_cvt_pkrtz(__builtin_bit_cast(float, pair << 16) * of_row,
                                                 __builtin_bit_cast(float, pair & 0xffff0000) * of_row));
      }
    }
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 4; i += 2) {
      const uint32_t first = words[i], second = words[i + 1];
      words[i] = __builtin_amdgcn_perm(second, first, 0x05040100);
      words[i + 1] = __builtin_amdgcn_perm(second, first, 0x07060302);
    }
    return words;
  }

 private:
  FA_DEVICE static float from_lane(float value, int lane) {
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, value)));
  }
};

}  // namespace fa
