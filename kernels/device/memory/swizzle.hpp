// Position of a 16-byte unit of a row in an LDS tile. Each row's units are permuted (XOR), so eight lanes
// accessing one unit of eight consecutive rows touch every bank once. The permutation repeats every kPeriod
// rows, so a distance of kPeriod rows is a constant. Host-testable.
//
// kPadded: rows are an odd number of units apart instead, which also spreads them. It costs a unit per row,
// and one address serves all of a lane's units instead of one each. Rows of a period kBlock or more apart are
// a unit further apart. Otherwise rows 8 apart would start at the same bank.
#pragma once

#include "device/arch/choice.hpp"

namespace fa {

template <int kRows, int kRowBytes, int kPeriod, bool kPadded = false, int kBlock = kPeriod>
struct Swizzle {
  static constexpr int kUnits = kRowBytes / 16;
  static constexpr bool kPermuted = !kPadded;
  static constexpr int kStride = kRowBytes + (kPadded ? 16 : 0);  // bytes from row to row
  static constexpr bool kShifted = kPadded && kBlock < kPeriod;   // a period has more than one block
  static constexpr int kBytes = kRows * kStride + (kShifted ? kRows / kBlock - 1 : 0) * 16;
  static constexpr int kPeriodBytes = kPeriod * kStride;
  static constexpr int kSpan = (kUnits & -kUnits) < 8 ? kUnits & -kUnits : 8;  // units that change places
  static_assert(kRowBytes % 16 == 0 && kUnits * kRowBytes % 64 == 0,
                "eight rows can be spread over the banks");
  static_assert(!kPadded || kUnits % 2 == 0, "a unit more makes their number odd");
  static_assert(!kShifted || (kRows == kPeriod && kBlock % 4 == 0), "one period of blocks");
  static_assert(kPeriod >= 8 && kRows % kPeriod == 0, "a tile is whole periods of at least 8 rows");

  static constexpr int permutation(int row) {
    if constexpr (kPadded) return 0;
    const int group = row % kPeriod / (8 / kSpan);
    // gfx942 serves lanes with non-consecutive rows together: 0-3 and 20-23. With four units, two per bank,
    // the highest bit of 16 groups would make them conflict.
    const int turn = group / kSpan % (kSpan == 4 ? 2 : kSpan);
    return (group ^ turn) % kSpan;
  }

  // Byte offset of a unit of row `row + next`: `row` is a multiple of 2 or 4 and `next` below it. In row
  // `row` another unit has this offset.
  static constexpr int offset_next(int row, int next, int unit) {
    return offset(row, unit ^ permutation(next)) + next * kStride;
  }

  // Byte offset of the unit `units` after the one at `at` in the same row. The two numbers share no bit.
  static constexpr int offset_beyond(int at, int units) {
    if constexpr (kPadded) return at + units * 16;
    return (at ^ units % kSpan * 16) + units / kSpan * (kSpan * 16);
  }

  // Byte offset of the same unit `rows` rows below. `rows` shares no bit with the row's number.
  static constexpr int offset_below(int at, int rows) {
    return (at ^ permutation(rows) * 16) + rows * kStride;
  }

  // Byte offset of a unit. In long rows only this form lets the compiler see constant distances between
  // units. Otherwise it keeps a register for each. In short rows it sees them in the shorter, faster form
  // too.
  static constexpr int offset(int row, int unit) {
    if constexpr (kShifted) {
      return row * kStride + (row / kBlock + unit) * 16;
    } else if constexpr (kPadded) {
      return row * kStride + unit * 16;
    } else if constexpr (kUnits <= 8) {
      return row * kRowBytes + (unit ^ permutation(row)) * 16;
    } else {
      return row * kRowBytes + (unit % kSpan ^ permutation(row)) * 16 + unit / kSpan * (kSpan * 16);
    }
  }
};

template <class First, class Second>
inline constexpr bool kSame = false;
template <class Type>
inline constexpr bool kSame<Type, Type> = true;

// Units in the order of reads by 16 lanes: one unit of each of 16 rows, then the next unit of these rows. One
// address serves all of a lane's units, and reads need no padding. To keep stores of pieces out of each
// other's banks, rows from 8 on are shifted by kShift bytes, units by kUnitPad and periods of 16 rows by
// kPeriodPad.
template <int kRows, int kRowBytes, int kShift = 0, int kUnitPad = 0, int kPeriodPad = 0>
struct Fragments {
  static constexpr int kUnits = kRowBytes / 16;
  static constexpr int kUnitBytes = 256 + kUnitPad;
  static constexpr int kPeriodBytes = kUnits * kUnitBytes + kPeriodPad;
  static constexpr int kBytes = kRows / 16 * kPeriodBytes;
  static constexpr bool kPermuted = false;
  static_assert(kRowBytes % 16 == 0 && kRows % 16 == 0, "a tile is whole units and periods");
  static_assert(kShift <= kUnitPad, "units do not overlap");

  static constexpr int offset(int row, int unit) {
    return row / 16 * kPeriodBytes + unit * kUnitBytes + row % 16 * 16 + row % 16 / 8 * kShift;
  }

  // As Swizzle's.
  static constexpr int offset_beyond(int at, int units) { return at + units * kUnitBytes; }
  static constexpr int offset_below(int at, int rows) { return at + offset(rows, 0); }
};

// Fragments of rows of 32 bytes. Lanes storing one piece of each of 16 rows, 8 apart, never conflict.
template <int kRows, int kRowBytes>
using ShortFragments = Fragments<kRows, kRowBytes, 16, 64, 32>;

// Rows of a tile read both ways, for an LDS that serves 256 bytes at once: one unit of each of 16 rows, or,
// transposed, 64 bytes of each of 4 rows. Four rows fill these 256 bytes, each with its own 64, and the next
// four start a unit later. One address serves all of a lane's units.
template <int kRows, int kRowBytes>
struct FannedRows {
  static constexpr int kUnits = kRowBytes / 16;
  static constexpr bool kPermuted = false;
  static constexpr int kStride = kRowBytes + (kRowBytes / 64 % 2 == 0 ? 64 : 0);  // an odd number of 64 bytes
  static constexpr int kBytes = kRows * kStride + kRows / 4 * 16;
  static constexpr int kPeriodBytes = 32 * kStride + 32 / 4 * 16;
  static_assert(kRowBytes % 64 == 0 && kRows % 16 == 0, "whole pieces, and whole turns through the banks");

  static constexpr int offset(int row, int unit) { return row * kStride + (row / 4 + unit) * 16; }

  // As Swizzle's. `rows` is a multiple of 4.
  static constexpr int offset_beyond(int at, int units) { return at + units * 16; }
  static constexpr int offset_below(int at, int rows) { return at + offset(rows, 0); }
};

// The 8 bytes of a tile that a lane requests in a transposed read. 16 lanes request 4 rows of 16 elements,
// and each gets one element of the 4 rows: lane l gets element l % 4 of the requests of lanes numbered l / 4
// % 4. Elements are in the order of slots (mma/layout.hpp), as rows are.
constexpr int turned_row(int lane) { return lane / 32 * 4 + lane % 16 / 4; }
constexpr int turned_byte(int lane) { return lane % 32 / 16 * 32 + lane % 2 * 16 + lane % 4 / 2 * 8; }

// Fragments for tiles stored by blocks of 4 rows. These lie in slots 2 apart, or side by side with kInOrder.
template <int kRows, int kRowBytes, bool kInOrder>
using RowFragments =
    Fragments<kRows, kRowBytes, kInOrder ? 16 : 32, 32, !kInOrder ? 64 : (kRows == 32 ? 32 : 0)>;
template <int kRows, int kRowBytes, bool kInOrder>
using TransposedFragments = Fragments<kRows, kRowBytes, 16, kInOrder && kRowBytes == 64 ? 16 : 32>;

// Column of the `index`-th piece (4 elements by 4 of `blocks` * 4 rows). Neighbouring pieces are of other
// rows, so 16 lanes have no bank conflict in either form of the tile.
constexpr int spread_column(int index, int blocks, bool in_order) {
  return blocks == 4 && !in_order ? (index & ~6) | (index & 2) << 1 | (index & 4) >> 1 : index;
}

}  // namespace fa
