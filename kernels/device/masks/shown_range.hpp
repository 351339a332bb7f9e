// The keys shown by a mask to the rows of one wave: passed from fa_mask_ranges_* to the kernels with a mask.
//
// They are stored at the first of these rows, in out or, before gradients, in dq: both are written after all
// readers. So calls need no extra memory.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

inline constexpr int kNoKey = 1 << 30;  // beyond all keys

// Keys [seen_begin, seen_end) contain all keys seen by any of the rows. Each row sees all of [full_begin,
// full_end), which may be empty, and is empty for a bias. Bounds are multiples of 16 keys and may exceed the
// last key. For several groups of rows, each of these numbers is the least.
struct ShownKeys {
  int seen_begin, minus_seen_end, minus_full_begin, full_end;
};
static_assert(sizeof(ShownKeys) == 16, "rows of out are multiples of 16 bytes");

using ShownPlace = __attribute__((address_space(1))) u32x4*;

// For the rows from `row` on. `at` is the start of the rows of their sequence and head, in elements.
FA_DEVICE ShownPlace shown_place(const void* out, int64_t at, int64_t o_row, int row) {
  return (ShownPlace)(static_cast<const char*>(out) + (at + row * o_row) * 2);
}

// Reduces over lanes differing only in bits of kPeers. Each of them gets the result.
template <int kPeers, class Combine>
FA_DEVICE int of_lanes(int value, int lane, Combine combine) {
  const auto bits = [](float x) { return __builtin_bit_cast(int, x); };
  const float found = across_lanes<kPeers>(__builtin_bit_cast(float, value), lane, [&](float a, float b) {
    return __builtin_bit_cast(float, combine(bits(a), bits(b)));
  });
  return bits(found);
}

template <int kPeers>
FA_DEVICE int least_of_lanes(int value, int lane) {
  return of_lanes<kPeers>(value, lane, [](int a, int b) { return a < b ? a : b; });
}

}  // namespace fa
