// Scores whose products are divided among the waves of a group. Each wave writes its part into LDS, and all
// add up the parts of their group.
#pragma once

#include "device/forward/parts/block.hpp"

namespace fa {

// kApart: bytes between the parts of neighbouring waves. 0: adjacent.
template <class B, int kApart = 0>
struct ScoreParts {
  static constexpr int kFours = sizeof(typename B::Scores) / sizeof(f32x4);  // per lane
  static constexpr int kFoursBytes = B::Unit::kWave * sizeof(f32x4);
  static constexpr int kBytes = kFours * kFoursBytes;  // per wave
  static constexpr int kStride = kApart == 0 ? kBytes : kApart;
  static_assert(B::kSlices == 2 || B::kSlices == 4, "parts are added in pairs");
  using Four = __attribute__((address_space(3))) f32x4*;

  LdsBytes all;
  int wave, lane;

  // `all`: the first wave's part.
  FA_DEVICE ScoreParts(LdsBytes all, const B& block) : all(all), wave(block.wave), lane(block.lane) {}

  FA_DEVICE void write(const typename B::Scores& s) const {
#pragma unroll
    for (int i = 0; i < kFours; ++i) *place(0, i) = reinterpret_cast<const f32x4*>(&s)[i];
  }

  // In pairs, so all waves get the same bits: a sum of two is independent of the order.
  FA_DEVICE void add(typename B::Scores& s) const {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      f32x4 sum = reinterpret_cast<const f32x4*>(&s)[i] + *place(1, i);
      if constexpr (B::kSlices == 4) sum += *place(2, i) + *place(3, i);
      reinterpret_cast<f32x4*>(&s)[i] = sum;
    }
  }

 private:
  // A lane's group of four scores, number `i`, of the wave whose slice differs in the bits of `apart`.
  FA_DEVICE Four place(int apart, int i) const {
    return reinterpret_cast<Four>(all + (wave ^ apart) * kStride + i * kFoursBytes + lane * sizeof(f32x4));
  }
};

}  // namespace fa
