// Additions to the softmax of scores/folded_softmax.hpp, for kernels with a mask, and where a rise of the
// maximum moves the shift.
#pragma once

#include "device/mma/unit.hpp"

namespace fa {

template <int kCount>
FA_DEVICE float largest_of(const float* values) {
  float found = values[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) found = __builtin_fmaxf(found, values[i]);
  return found;
}

template <class Unit>
FA_DEVICE int element_of(int f, int column) {
  return f % Unit::kRows * Unit::kColumns + column;
}

// Maximum of a column of kElements per lane, of this lane.
template <class Unit, int kElements>
FA_DEVICE float highest_of_lane(const typename Unit::C* s, int column) {
  float own = s[0][column];
#pragma unroll
  for (int f = 1; f < kElements; ++f) {
    own = __builtin_fmaxf(own, s[f / Unit::kRows][element_of<Unit>(f, column)]);
  }
  return own;
}

// Likewise in all lanes of the column.
template <class Unit, int kElements>
FA_DEVICE float highest_of(const typename Unit::C* s, int column, int lane) {
  return across_lanes<Unit::kPeers>(highest_of_lane<Unit, kElements>(s, column), lane,
                                    [](float a, float b) { return __builtin_fmaxf(a, b); });
}

// Likewise of all columns, if all lanes have them.
template <class Unit, int kElements>
FA_DEVICE void highest_of_columns(const typename Unit::C* s, float (&highest)[4]) {
#pragma unroll
  for (int column = 0; column < 4; ++column) highest[column] = highest_of_lane<Unit, kElements>(s, column);
  highest_of_wave(highest);
}

// Sum of a lane's part of a column, by kChains sums; with Unit::kChecked, `highest` is the largest of these.
template <class Unit, int kElements, int kChains>
FA_DEVICE float sum_of_column(const typename Unit::C* p, int column, float& highest) {
  float chain[kChains];
#pragma unroll
  for (int f = 0; f < kElements; ++f) {
    const float one = p[f / Unit::kRows][element_of<Unit>(f, column)];
    chain[f % kChains] = f < kChains ? one : chain[f % kChains] + one;
  }
  if constexpr (Unit::kChecked != 0) highest = largest_of<kChains>(chain);
#pragma unroll
  for (int half = kChains / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) chain[i] += chain[i + half];
  }
  return chain[0];
}

// Truncates the elements of the columns with a flag in `cuts`.
template <class Unit, int kSteps>
FA_DEVICE void cut_columns(typename Unit::C* p, const bool* cuts) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < Unit::kRows * Unit::kColumns; ++i) {
      const float cut = cut_one<Unit::kCut>(here(p[step][i]));
      p[step][i] = cuts[i % Unit::kColumns] ? cut : p[step][i];
    }
}

template <bool kThere, class Unit>
struct FarBelow {};

template <class Unit>
struct FarBelow<true, Unit> {
  float below[Unit::kColumns] = {};  // part of the shift missing from the start of products
  float highest = Unit::kHighest;    // NaN: dropout changes every tile

  FA_DEVICE void drop_if(bool drops) { highest = drops ? __builtin_nanf("") : Unit::kHighest; }
  FA_DEVICE bool drops() const { return highest != highest; }
};

// The gain for a shift near `top`, whose rounding could make P of the maximum too large for its code. A
// coarse shift has none: then that P is 1.
template <class Unit>
FA_DEVICE float gain_at(float top, float gain) {
  constexpr float kAtMost = 1.14f;  // times kTop's log2: P is at most 2 * kTop
  static_assert(Unit::kTop <= 128, "2^(1.14 * 7) is below 2 * 128");
  const float lifted = (top + gain) - top;
  return lifted > gain * kAtMost ? 0 : lifted;
}

// The next shift, and what it adds to shifted scores: exactly, also where the shift is rounded.
template <class Unit>
FA_DEVICE void raise_exactly(float shift, float highest, float gain, bool rises, float& to, float& by) {
  const float top = shift - highest, own = gain_at<Unit>(top, gain);
  to = rises ? top + own : shift;
  by = rises ? own - highest : 0;
}

}  // namespace fa
