// From a wave's O^T in registers to out's rows.
#pragma once

#include "fa/mma/unit.hpp"

namespace fa {

// Writes column `column` of O^T, times `factor`, to the row of out that begins at `row`.
template <class Unit, DType kDType, int kHeadDim>
FA_DEVICE void store_column(const typename Unit::C* o, int column, float factor, char* row, int lane) {
  constexpr int kHeld = kHeadDim / Unit::kM * Unit::kRows;
  constexpr int kChunk = kHeld % 8 == 0 ? 8 : 4;  // consecutive elements, written at once
  static_assert(kHeld % kChunk == 0, "each lane holds whole chunks of a row");
  typedef uint32_t Words __attribute__((ext_vector_type(kChunk / 2)));
  // A NaN survives `pack_numbers` here: it is the hardware's own or that of a 16-bit input, and has no low
  // bits that rounding could carry from.
  char* held = row + Unit::held_begin(lane, kHeadDim) * 2;
#pragma unroll
  for (int f = 0; f < kHeld; f += kChunk) {
    Words words;
#pragma unroll
    for (int word = 0; word < kChunk / 2; ++word) {
      const int low = f + word * 2, high = low + 1;
      words[word] =
          pack_numbers<kDType>(o[low / Unit::kRows][low % Unit::kRows * Unit::kColumns + column] * factor,
                               o[high / Unit::kRows][high % Unit::kRows * Unit::kColumns + column] * factor);
    }
    *reinterpret_cast<Words*>(held + Unit::held_step(f) * 2) = words;
  }
}

}  // namespace fa
