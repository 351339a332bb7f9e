// The bf16 values that are fp16 values when scaled (proof in narrow.hpp). Host-testable.
#pragma once

#include <stdint.h>

namespace fa {

inline constexpr int kNarrowScale = 8;  // log2

// Magnitudes of bf16, as bits: the smallest accepted one (apart from 0), and the first one too large.
inline constexpr int kNarrowLeast = (127 - 25) << 7;
inline constexpr int kNarrowEnd = (127 + 8) << 7;

// Checks values by their magnitudes minus 1, modulo 2^16: the smallest unsigned and the largest signed one.
constexpr bool narrowed_exactly(uint16_t least, int16_t most) {
  return least >= kNarrowLeast - 1 && most < kNarrowEnd - 1;
}

constexpr bool narrows(uint16_t bits) {
  const uint16_t below = static_cast<uint16_t>((bits & 0x7fff) - 1);
  return narrowed_exactly(below, static_cast<int16_t>(below));
}

}  // namespace fa
