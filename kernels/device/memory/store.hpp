// Writes a wave's O^T from registers to rows of out.
#pragma once

#include "device/mma/unit.hpp"

namespace fa {

// Element `f` of a lane's part of column `column` of O^T.
template <class Unit>
FA_DEVICE float held_element(const typename Unit::C* o, int column, int f) {
  return o[f / Unit::kRows][f % Unit::kRows * Unit::kColumns + column];
}

// Byte offset in a row of out of a lane's part, for the row's steps from `first` on.
template <class Unit, int kHeadDim>
FA_DEVICE int held_byte(int lane, int first) {
  return (Unit::held_begin(lane, kHeadDim) + Unit::held_step(first * Unit::kRows)) * 2;
}

// Writes kSteps steps of column `column` of O^T, times `factor`: `write(byte, words)` gets consecutive
// elements and their offset after the first. Writes zeros unless `seen`: without a visible key, O holds 0 *
// V, which is NaN if V is.
template <class Unit, DType kDType, int kSteps, class Write>
FA_DEVICE void store_column(const typename Unit::C* o, int column, float factor, bool seen, Write write) {
  constexpr int kHeld = kSteps * Unit::kRows;
  // Consecutive elements, written at once.
  constexpr int kChunk = kHeld % 8 == 0 && Unit::held_step(7) == 7 ? 8 : kHeld % 4 == 0 ? 4 : 2;
  static_assert(kHeld % kChunk == 0, "each lane holds whole chunks of a row");
  typedef uint32_t Words __attribute__((ext_vector_type(kChunk / 2)));
  // NaN survives `pack_numbers` here: it comes from the hardware or a 16-bit input, so it has no low bits to
  // carry from.
#pragma unroll
  for (int f = 0; f < kHeld; f += kChunk) {
    Words words;
#pragma unroll
    for (int word = 0; word < kChunk / 2; ++word) {
      const uint32_t pair = pack_numbers<kDType>(held_element<Unit>(o, column, f + word * 2) * factor,
                                                 held_element<Unit>(o, column, f + word * 2 + 1) * factor);
      words[word] = seen ? pair : 0;
    }
    write(Unit::held_step(f) * 2, words);
  }
}

// Likewise in fp32.
template <class Unit, int kHeadDim, int kSteps>
FA_DEVICE void store_column_fp32(const typename Unit::C* o, int column, float factor, float* row, int lane,
                                 int first) {
  constexpr int kHeld = kSteps * Unit::kRows, kChunk = kHeld % 4 == 0 ? 4 : 2;
  static_assert(kHeld % kChunk == 0, "each lane holds whole chunks of a row");
  typedef float Chunk __attribute__((ext_vector_type(kChunk)));
  float* held = row + Unit::held_begin(lane, kHeadDim) + Unit::held_step(first * Unit::kRows);
#pragma unroll
  for (int f = 0; f < kHeld; f += kChunk) {
    Chunk chunk;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) chunk[i] = held_element<Unit>(o, column, f + i) * factor;
    *reinterpret_cast<Chunk*>(held + Unit::held_step(f)) = chunk;
  }
}

}  // namespace fa
