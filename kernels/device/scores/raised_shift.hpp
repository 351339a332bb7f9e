// Where a rise of the maximum moves the shift of FoldedSoftmax.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

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
