// A tile's boolean mask that hides keys from exponents instead of scores: with paired instructions three for
// four scores, besides those that scale the scores, instead of eight.
//
// A hidden score that is NaN, infinite or above 4e37 is not hidden so. The softmax sees this by the sum of
// exponentials, and hides the scores themselves before it computes their maximum.
#pragma once

#include "device/masks/tile_range.hpp"

namespace fa {

// `Mask`: DenseMask.
template <class Mask>
struct LateMask {
  using Unit = typename Mask::Unit;
  static constexpr int kSteps = Mask::kHeld / Unit::kRows;

  const Mask& mask;
  int first;
  const typename Mask::Early& early;
  Flag needed;

  FA_DEVICE bool any() const { return needed; }

  // Scores times `factor`, with the mask.
  template <class C>
  FA_DEVICE void scale(const C* s, C* p, float factor) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) p[step] = s[step];
    mask.template each_run<1>(p, first, early, [=](float x, const uint32_t* words, int i, int) {
      return __builtin_fmaf(x, factor, Mask::Score::addend(words, i));
    });
  }

  // For paired instructions. With all steps in neighbouring registers, the mask would take four more.
  template <class C>
  FA_DEVICE void settle(C& p, int step) const {
    if (step != 0) Unit::settle(p);
  }

  template <class C>
  FA_DEVICE void hide(C* s) const {
    if (!any()) return;
    mask.template each_run<1>(s, first, early, [](float x, const uint32_t* words, int i, int) {
      return Mask::Score::shown(x, words, i);
    });
  }
};

// Replaces it where masks hide scores, or there are none.
template <class Unit>
struct NoLateMask {
  FA_DEVICE static constexpr bool any() { return false; }
  template <class C>
  FA_DEVICE void scale(const C*, C*, float) const {}
  template <class C>
  FA_DEVICE void settle(C& p, int) const {
    Unit::settle(p);
  }
  template <class C>
  FA_DEVICE void hide(C*) const {}
};

}  // namespace fa
