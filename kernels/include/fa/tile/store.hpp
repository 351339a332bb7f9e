// From a wave's O^T in registers to out's rows.
#pragma once

#include "fa/mma/unit.hpp"

namespace fa {

// Whether inf or NaN is among the values.
template <int kCount>
FA_DEVICE bool not_finite(const float* values) {
  float found[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < kCount; ++i) found[i % 2] = __builtin_fmaf(values[i], 0.0f, found[i % 2]);
  return found[0] + found[1] != 0;
}

// Writes column `column` of O^T, times `factor`, to the row of out that begins at `row`.
template <class Unit, DType kDType, int kHeadDim>
FA_DEVICE void store_column(const typename Unit::C* o, int column, float factor, char* row, int lane) {
  constexpr int kHeld = kHeadDim / Unit::kM * Unit::kRows;
  constexpr int kChunk = kHeld % 8 == 0 ? 8 : 4;  // consecutive elements, written at once
  static_assert(kHeld % kChunk == 0, "each lane holds whole chunks of a row");
  typedef uint32_t Words __attribute__((ext_vector_type(kChunk / 2)));
  char* held = row + Unit::held_begin(lane, kHeadDim) * 2;
  float values[kHeld];
#pragma unroll
  for (int f = 0; f < kHeld; ++f)
    values[f] = o[f / Unit::kRows][f % Unit::kRows * Unit::kColumns + column] * factor;
  const auto store = [&](auto pack_pair) {
#pragma unroll
    for (int f = 0; f < kHeld; f += kChunk) {
      Words words;
#pragma unroll
      for (int word = 0; word < kChunk / 2; ++word) {
        words[word] = pack_pair(values[f + word * 2], values[f + word * 2 + 1]);
      }
      *reinterpret_cast<Words*>(held + Unit::held_step(f) * 2) = words;
    }
  };
  // Numbers are rounded to bf16 with half the instructions that it takes where there may be NaN.
  if (kDType == DType::bf16 && !any_lane<Unit::kWave>(not_finite<kHeld>(values))) {
    store(pack_numbers<kDType>);
  } else {
    store(pack<kDType>);
  }
}

}  // namespace fa
