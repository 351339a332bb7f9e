// Additions to the softmax of scores/folded_softmax.hpp, for kernels with a mask, and where a rise of the
// maximum moves the shift.
#pragma once

#include "device/arch/device.hpp"

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

// Maximum of a column of kElements per lane, in all its lanes.
template <class Unit, int kElements>
FA_DEVICE float highest_of(const typename Unit::C* s, int column, int lane) {
  float own = s[0][column];
#pragma unroll
  for (int f = 1; f < kElements; ++f) {
    own = __builtin_fmaxf(own, s[f / Unit::kRows][element_of<Unit>(f, column)]);
  }
  return across_lanes<Unit::kPeers>(own, lane, [](float a, float b) { return __builtin_fmaxf(a, b); });
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
