// Softmax of int8 products, for loops that find a tile's exponents beside products. Scores of kM keys have a
// scale of their own in each column: an exponent is the number of products times it, in the same one
// multiply-add as without scales, and the maximum is that of the largest numbers.
#pragma once

#include "device/scores/eager_softmax.hpp"

namespace fa {

// The bits of a sum n of int8 products that started from this number are those of the float kCountFrom + n,
// exact for |n| < 2^22.
inline constexpr float kCountFrom = 12582912;  // 1.5 * 2^23
// Likewise, of an inline constant, 1 / (2 pi): kInlineFrom + n * 2^-26. Its mantissa has room for 128
// products of 127 in either direction.
inline constexpr float kInlineFrom = 0x1.45f306p-3f, kInlineUnit = 0x1p-26f;

template <class Unit, int kSteps>
struct CountSoftmax : Softmax<Unit, kSteps, false, kSteps, false> {
  using Base = Softmax<Unit, kSteps, false, kSteps, false>;
  using C = typename Base::C;
  using Base::c, Base::far, Base::gain_log2, Base::offset, Base::slack, Base::sum, Base::top;
  struct Highest {
    float of[kSteps];
  };
  // Not 0, or hidden keys would be NaN.
  static constexpr float kLeastScale = 0x1p-120f;

  const float* of_keys;  // scales of the head's keys
  float of_row;          // q's scale of the lane's row, softmax_scale and log2(e)
  float given[kSteps];   // scales of the next tile's keys
  float scale[kSteps];   // of a tile's scores, in log2
  float from[kSteps];
  C start;         // kCountFrom for each score, or all tiles would write it anew
  int waits = -1;  // negative: each tile is computed exactly. In a scalar register

  using Base::Base;

  // Call before the first tile, with what Int8Scores found.
  template <class Scales>
  FA_DEVICE void begin_scales(const Scales& scales) {
    start = here(C(kCountFrom));
    of_keys = scales.of_keys;
    of_row = __builtin_fabsf(scales.of_row[0]);
  }
  // In a vector register: waiting for loads of scalars is waiting for all reads of LDS.
  FA_DEVICE void load_scales(int first) {
    typedef float Floats __attribute__((ext_vector_type(kSteps), aligned(sizeof(float))));
    const uint32_t at = here(static_cast<uint32_t>(first) / Unit::kM * 4);
    const Floats found = *reinterpret_cast<const Floats*>(reinterpret_cast<const char*>(of_keys) + at);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) given[i] = found[i];
  }
  FA_DEVICE void begin_tile() {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) scale[i] = here(__builtin_fmaf(of_row, given[i], kLeastScale));
    find_from();
  }

  template <int kFirst, int kEnd>
  FA_DEVICE static Highest maximum_of(Highest highest, const C* s) {
#pragma unroll
    for (int f = kFirst; f < kEnd; ++f) {
      const float score = s[f / Unit::kRows][f % Unit::kRows];
      float& own = highest.of[f / Unit::kRows];
      own = __builtin_fmaxf(f % Unit::kRows == 0 ? Base::kNone : own, score);
    }
#pragma unroll
    for (int i = kFirst / Unit::kRows; i <= (kEnd - 1) / Unit::kRows; ++i)
      highest.of[i] = here(highest.of[i]);
    return highest;
  }

  template <int kFirst, int kEnd>
  FA_DEVICE void find_exponents_of(C* exponents, const C* s) const {
#pragma unroll
    for (int f = kFirst; f < kEnd; ++f) {
      constexpr int kRows = Unit::kRows;
      float* const row = reinterpret_cast<float*>(&exponents[f / kRows]);
      row[f % kRows] = here(__builtin_fmaf(s[f / kRows][f % kRows], scale[f / kRows], from[f / kRows]));
    }
  }

  // As Softmax's. The exponent of the largest score is known exactly, however coarse `from` is.
  template <int kOut>
  FA_DEVICE void follow_exponents(const Highest& highest, C* exponents, C* s, C* o, int lane) {
    if (!exceeds(highest)) return;
    follow_maximum<kOut>(highest, o, lane);
    if (exceeds(highest)) {
      find_exactly(highest, exponents, s);
    } else {
      find_exponents_of<0, Base::kElements>(exponents, s);
    }
  }
  // Makes scores of the first tile such that the next function finds their exponents.
  FA_DEVICE void follow_first(const Highest& highest, C* s, int lane) {
    follow_maximum<0>(highest, nullptr, lane);
    find_exactly(highest, s, s);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) scale[i] = 1, from[i] = 0;
  }

 private:
  // Whether an exponential may be too large for its code, or a scale is NaN.
  FA_DEVICE bool exceeds(const Highest& highest) const {
    const float most = gain_log2() + slack;
    const float limit = __builtin_bit_cast(float, __builtin_bit_cast(int, most) | waits);
    bool higher = false;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) higher |= !(__builtin_fmaf(highest.of[i], scale[i], from[i]) <= limit);
    return any_lane<Unit::kWave>(higher);
  }
  template <int kOut>
  FA_DEVICE void follow_maximum(const Highest& highest, C* o, int lane) {
    float most = Base::kNone;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) most = __builtin_fmaxf(most, (highest.of[i] - kCountFrom) * scale[i]);
    if (any_lane<Unit::kWave>(!(most <= top[0] + slack))) Base::template raise<kOut>(&most, o, lane);
    waits = far | (any_lane<Unit::kWave>(top[0] == Base::kNone) ? -1 : 0);
    find_from();
  }
  FA_DEVICE void find_from() {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) from[i] = here(__builtin_fmaf(-kCountFrom, scale[i], offset[0]));
  }
  // Scores are products, so the one of the maximum loses nothing.
  FA_DEVICE void find_exactly(const Highest& highest, C* exponents, const C* s) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      // Rows with such a scale become NaN by their sums, or hidden keys would be NaN, too.
      const bool is_number = scale[i] < __builtin_inff();
      sum[0] += is_number || highest.of[i] == Base::kNone ? 0 : __builtin_nanf("");
      scale[i] = is_number ? scale[i] : kLeastScale;
    }
    const float shift = gain_log2() - (top[0] == Base::kNone ? 0 : top[0]);
#pragma unroll
    for (int f = 0; f < Base::kElements; ++f) {
#pragma clang fp contract(off)
      const int step = f / Unit::kRows, row = f % Unit::kRows;
      const float score = (s[step][row] - start[0]) * scale[step];
      reinterpret_cast<float*>(&exponents[step])[row] = score + shift;
    }
  }
};

// EagerSoftmax of int8 products that started from kInlineFrom. All of a lane's scores of a tile have one
// scale.
template <class Unit, int kSteps>
struct EagerCounts : EagerSoftmax<Unit, kSteps, false, kSteps, false> {
  using Base = EagerSoftmax<Unit, kSteps, false, kSteps, false>;
  using C = typename Base::C;
  using Base::able, Base::far, Base::gain_log2, Base::offset, Base::slack, Base::sum, Base::top, Base::tries;
  using Global = __attribute__((address_space(1))) const char*;
  static constexpr float kLeastScale = 0x1p-120f;  // as CountSoftmax's
  static constexpr float kCoarse = 0x1p-6f;        // error of an exponent, a fraction of that of codes
  static_assert(kSteps * Unit::kRows == kKeysOfScale && Unit::held_begin(Unit::kWave / 2, 0) == kKeysOfScale);

  Global of_keys;    // scales of the head's keys
  uint32_t of_lane;  // place of the lane's among those of a tile
  float of_row;      // q's scale of the lane's row, softmax_scale and log2(e)
  float given;       // scale of the lane's keys in the next tile
  float scale;       // of a tile's scores, in log2

  using Base::Base;

  // Call before the first tile, with what Int8Scores found.
  template <class Scales>
  FA_DEVICE void begin_scales(const Scales& scales) {
    of_keys = (Global)scales.of_keys;
    of_lane = Unit::held_begin(scales.lane, 0) / kKeysOfScale * sizeof(float);
    of_row = __builtin_fabsf(scales.of_row[0]) / kInlineUnit;
  }
  // In a vector register: waiting for loads of scalars is waiting for all reads of LDS.
  FA_DEVICE void load_scales(int first) {
    using Scale = __attribute__((address_space(1))) const float*;
    const Global of_tile = of_keys + static_cast<uint32_t>(first) / kKeysOfScale * sizeof(float);
    given = *(Scale)(of_tile + here(of_lane));
  }
  FA_DEVICE void begin_tile() { scale = here(__builtin_fmaf(of_row, given, kLeastScale)); }

  // As EagerSoftmax's.
  template <int kOut, class Mask>
  FA_DEVICE bool update(C* s, C* o, int lane, int hidden, const Mask& mask) {
    if (hidden < 0) mask();
    float from = from_of_scale();
    if (tries == 0) from = find_top<kOut>(s, o, lane);
    return Base::try_exponentials(s, scale, from);
  }

 private:
  FA_DEVICE float from_of_scale() const { return __builtin_fmaf(-kInlineFrom, scale, offset[0]); }

  // Returns what makes scores times `scale` exponents.
  template <int kOut>
  FA_DEVICE float find_top(C* s, C* o, int lane) {
    const float highest = Base::own_maximum(Base::kNone, s, 0);
    // Rows with such a scale become NaN by their sums, or hidden keys would be NaN, too.
    const bool is_number = here(scale) < __builtin_inff();
    sum[0] += is_number || highest == Base::kNone ? 0 : __builtin_nanf("");
    scale = is_number ? scale : kLeastScale;
    const float most = (highest - kInlineFrom) * scale;
    if (any_lane<Unit::kWave>(!(most <= top[0] + slack))) {
      Base::template raise_eagerly<kOut>(&most, o, lane);
      able = uniform(able), far = uniform(far), slack = uniform(slack);  // or they take vector registers
    }
    // NaN if nothing is visible. `far`: offset is without top.
    const float from = from_of_scale(), wanted = most - top[0] + gain_log2();
    const bool coarse = !(__builtin_fabsf(__builtin_fmaf(highest, scale, from) - wanted) <= kCoarse);
    return any_lane<Unit::kWave>(coarse) ? find_exactly(s) : from;
  }
  // However coarse `from` is. Scores become products, so the one of the maximum loses nothing.
  FA_DEVICE float find_exactly(C* s) {
#pragma unroll
    for (int f = 0; f < Base::kElements; f += 2) {
      f32x2& pair = reinterpret_cast<f32x2*>(&s[f / Unit::kRows])[f % Unit::kRows / 2];
      pair = here((pair - kInlineFrom) * scale);
    }
    scale = 1;
    return gain_log2() - (top[0] == Base::kNone ? 0 : top[0]);
  }
};

// What a maximum starts from, and the maximum between two of its parts.
template <class Softmax>
FA_DEVICE float lowest_of(const Softmax& softmax) {
  return softmax.top[0];
}
template <class Unit, int kSteps>
FA_DEVICE auto lowest_of(const CountSoftmax<Unit, kSteps>&) {
  return anything<typename CountSoftmax<Unit, kSteps>::Highest>();
}
template <class Highest>
FA_DEVICE Highest kept(Highest highest) {
  return highest;
}
FA_DEVICE float kept(float highest) { return here(highest); }

}  // namespace fa
