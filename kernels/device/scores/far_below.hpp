// Additions to the softmax of scores/folded_softmax.hpp for kernels with a mask.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

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
