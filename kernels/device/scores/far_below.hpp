// Additions to the softmax of scores/folded_softmax.hpp, most for kernels with a mask.
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

}  // namespace fa
