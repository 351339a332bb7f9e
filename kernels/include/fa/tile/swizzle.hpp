// Where a 16-byte unit of a row sits in an LDS tile: each row's units are permuted (XOR) so that eight
// lanes which access one unit of eight consecutive rows touch every bank once.  The permutation repeats
// with kPeriod rows, so that a distance of kPeriod rows is a constant.  Host-testable.
//
// kPadded: no permutation; rows are an odd number of units apart, which spreads them as well.  Costs a unit
// per row; one address serves all of a lane's units, instead of one for each.  Rows of a period that are
// kBlock or more apart are a unit further apart: without it, rows 8 apart would begin at the same bank.
#pragma once

namespace fa {

template <int kRows, int kRowBytes, int kPeriod, bool kPadded = false, int kBlock = kPeriod>
struct Swizzle {
  static constexpr int kUnits = kRowBytes / 16;
  static constexpr int kStride = kRowBytes + (kPadded ? 16 : 0);  // bytes from row to row
  static constexpr bool kShifted = kPadded && kBlock < kPeriod;   // whether a period has more than one block
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
    // gfx942 serves lanes together whose rows are not consecutive: 0-3 and 20-23.  With four units, two for
    // each bank, the change in the highest bit of 16 groups would let them meet.
    const int turn = group / kSpan % (kSpan == 4 ? 2 : kSpan);
    return (group ^ turn) % kSpan;
  }

  // Byte offset of a unit of row `row + next`, where `row` is a multiple of 4 and `next` below 4: it sits
  // where another unit sits in row `row`.
  static constexpr int offset_next(int row, int next, int unit) {
    return offset(row, unit ^ permutation(next)) + next * kStride;
  }

  // Byte offset of a unit.  In long rows the compiler sees that the distances between units are constant only
  // in this form, and otherwise keeps a register for each; in short rows it sees it, and the shorter form is
  // faster.
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

// First or Second.
template <bool kFirst, class First, class Second>
struct ChoiceOf {
  using Type = First;
};
template <class First, class Second>
struct ChoiceOf<false, First, Second> {
  using Type = Second;
};
template <bool kFirst, class First, class Second>
using Choice = typename ChoiceOf<kFirst, First, Second>::Type;

// Padded rows for tiles that are stored by blocks of 4 rows, which lie in slots 2 apart: rows 8 apart are
// also 16 banks apart, and periods of 16 rows 8 banks.
template <int kRows, int kRowBytes>
struct Spread {
  static constexpr int kUnits = kRowBytes / 16;
  static constexpr int kStride = kRowBytes + 16;
  static constexpr int kPeriodBytes = 16 * kStride + 160;
  static constexpr int kBytes = kRows / 16 * kPeriodBytes;
  static_assert(kUnits % 2 == 0, "a unit more makes their number odd");
  static_assert(kRows % 16 == 0, "a tile is whole periods");

  static constexpr int offset(int row, int unit) {
    return row / 16 * kPeriodBytes + row % 16 * kStride + row % 16 / 8 * 64 + unit * 16;
  }

  // Of pieces of 4 elements by 4 of `blocks` * 4 rows, neighbours are of other rows; then comes this column
  // for the `index`-th, so that 16 lanes meet in no bank in either form of the tile.
  static constexpr int column(int index, int blocks) {
    return blocks == 4 ? (index & ~6) | (index & 2) << 1 | (index & 4) >> 1 : index;
  }
};

}  // namespace fa
