// Where a 16-byte unit of a row sits in an LDS tile: each row's units are permuted (XOR) so that eight
// lanes which access one unit of eight consecutive rows touch every bank once.  The permutation repeats
// with kPeriod rows, so that a distance of kPeriod rows is a constant.  Host-testable.
#pragma once

namespace fa {

template <int kRows, int kRowBytes, int kPeriod>
struct Swizzle {
  static constexpr int kUnits = kRowBytes / 16;
  static constexpr int kBytes = kRows * kRowBytes;
  static_assert(kRowBytes % 16 == 0 && (kUnits & (kUnits - 1)) == 0, "a row is a power of two of units");
  static_assert(kPeriod >= 8 && kRows % kPeriod == 0, "a tile is whole periods of at least 8 rows");

  static constexpr int permutation(int row) {
    constexpr int kSpan = kUnits < 8 ? kUnits : 8;
    const int group = row % kPeriod / (8 / kSpan);
    return (group ^ group / kSpan) % kSpan;
  }

  // Byte offset of a unit.
  static constexpr int offset(int row, int unit) { return row * kRowBytes + (unit ^ permutation(row)) * 16; }
};

}  // namespace fa
