// Additions to the softmax of scores/folded_softmax.hpp for kernels with a mask.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

constexpr float kHighestSum = 1024;  // limit of a lane's sum of P over one tile

template <bool kThere, int kColumns>
struct FarBelow {};

template <int kColumns>
struct FarBelow<true, kColumns> {
  float below[kColumns] = {};   // part of the shift missing from the start of products
  float highest = kHighestSum;  // NaN: dropout changes every tile

  FA_DEVICE void drop_if(bool drops) { highest = drops ? __builtin_nanf("") : kHighestSum; }
  FA_DEVICE bool drops() const { return highest != highest; }
};

}  // namespace fa
