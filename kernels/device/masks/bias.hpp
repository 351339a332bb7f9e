// Changes to scores between the product and the mask: softcap and ALiBi.
#pragma once

#include "device/arch/device.hpp"
#include "device/mma/layout.hpp"

namespace fa {

// tanh with a relative error of a few units in the last place at every magnitude. NaN stays NaN.
FA_DEVICE float tanh_of(float x) {
  constexpr float kLog2e = 1.44269504088896341f;
  const float t = __builtin_amdgcn_exp2f(__builtin_fabsf(x) * (-2 * kLog2e));
  const float far = __builtin_copysignf((1 - t) * __builtin_amdgcn_rcpf(1 + t), x);
  // 1 - t cancels near 0.
  const float xx = x * x;
  float series = 0.0218694885f;
  series = __builtin_fmaf(series, xx, -0.0539682540f);
  series = __builtin_fmaf(series, xx, 0.133333333f);
  series = __builtin_fmaf(series, xx, -0.333333333f);
  const float near = __builtin_fmaf(x * xx, series, x);
  return xx < 0.0625f ? near : far;
}

// Turns products q.k into scores in units of log2(e), ready for exp2.
struct Bias {
  static constexpr float kLog2e = 1.44269504088896341f;

  float scale;    // softmax_scale, positive
  float softcap;  // 0: none
  bool sloped;    // ALiBi

  FA_DEVICE bool any() const { return softcap != 0 || sloped; }

  // `first` is the tile's first key, `diagonal(column)` the key at distance 0 from the column's query, and
  // `slope(column)` the loss of a score per key of distance.
  template <class Unit, int kKeys, class Diagonal, class Slope>
  FA_DEVICE void apply(typename Unit::C* s, int first, int lane, Diagonal diagonal, Slope slope) const {
    if (kManyConditions<Unit> ? !is_zero(softcap) : softcap != 0) {
      const float inner = scale / softcap, outer = softcap * kLog2e;
      each<Unit, kKeys>(s, [&](float x, int, int) { return tanh_of(x * inner) * outer; });
    } else {
      each<Unit, kKeys>(s, [&](float x, int, int) { return x * (scale * kLog2e); });
    }
    if (sloped) {
      float start[Unit::kColumns];
#pragma unroll
      for (int c = 0; c < Unit::kColumns; ++c) {
        start[c] = static_cast<float>(first + Unit::held_begin(lane, kKeys) - diagonal(c));
      }
      each<Unit, kKeys>(s, [&](float x, int c, int f) {
        const float distance = start[c] + static_cast<float>(Unit::held_step(f));
        return __builtin_fmaf(-slope(c) * kLog2e, __builtin_fabsf(distance), x);
      });
    }
  }

 private:
  template <class Unit, int kKeys, class Action>
  FA_DEVICE static void each(typename Unit::C* s, Action action) {
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
#pragma unroll
      for (int f = 0; f < kKeys / Unit::kM * Unit::kRows; ++f) {
        typename Unit::C& step = s[f / Unit::kRows];
        const int element = f % Unit::kRows * Unit::kColumns + c;
        step[element] = here(action(here(step[element]), c, f));
      }
    }
  }
};

}  // namespace fa
