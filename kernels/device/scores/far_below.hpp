// What the softmax of scores/folded_softmax.hpp has more beside a mask.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

constexpr float kHighestSum = 1024;  // of a lane's P of one tile

template <bool kThere, int kColumns>
struct FarBelow {};

template <int kColumns>
struct FarBelow<true, kColumns> {
  float below[kColumns] = {};   // of the shift, what products do not start from
  float highest = kHighestSum;  // NaN: dropout changes every tile

  FA_DEVICE void drop_if(bool drops) { highest = drops ? __builtin_nanf("") : kHighestSum; }
  FA_DEVICE bool drops() const { return highest != highest; }
};

}  // namespace fa
