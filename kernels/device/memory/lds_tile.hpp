// A tile in LDS, read and written by units.
#pragma once

#include "device/arch/device.hpp"
#include "device/memory/swizzle.hpp"

namespace fa {

template <class Places>
struct PlacedTile : Places {
  using Places::offset;

  // The tile from row index * kPeriod on. Its rows are permuted like those from row 0 on.
  FA_DEVICE static LdsBytes period(LdsBytes tile, int index) { return tile + index * Places::kPeriodBytes; }

  template <class T>
  FA_DEVICE static void write(LdsBytes tile, int row, int unit, int byte, T value) {
    *reinterpret_cast<__attribute__((address_space(3))) T*>(tile + offset(row, unit) + byte) = value;
  }

  // Writes 16 bits. Atomic, or the compiler first joins neighbours in registers, at the cost of more
  // instructions.
  FA_DEVICE static void write_half(LdsBytes tile, int row, int unit, int byte, uint32_t value) {
    using Half = __attribute__((address_space(3))) uint16_t*;
    __scoped_atomic_store_n(reinterpret_cast<Half>(tile + offset(row, unit) + byte),
                            static_cast<uint16_t>(value), __ATOMIC_RELAXED, __MEMORY_SCOPE_WVFRNT);
  }

  // One unit of row `row + next` (memory/swizzle.hpp).
  template <class A>
  FA_DEVICE static A read_next(LdsBytes tile, int row, int next, int unit) {
    static_assert(sizeof(A) == sizeof(u32x4), "one unit");
    return *reinterpret_cast<__attribute__((address_space(3))) A*>(tile +
                                                                   Places::offset_next(row, next, unit));
  }

  // Units at constant distances in one row, or in rows below. In a permuted row only the first offset is
  // kept, and each other offset is computed from it.
  template <class A>
  struct Row {
    LdsBytes tile;
    int first;

    FA_DEVICE Row(LdsBytes tile, int row, int unit, int byte = 0) : Row(tile, offset(row, unit) + byte) {}
    FA_DEVICE Row(LdsBytes tile, int at) : tile(tile), first(at) {
      if constexpr (Places::kPermuted) first = here(first);
    }
    FA_DEVICE A read(int units) const {
      return *reinterpret_cast<__attribute__((address_space(3))) A*>(tile +
                                                                     Places::offset_beyond(first, units));
    }
    // Writes to a row below.
    FA_DEVICE void write(int rows, A value) const {
      *reinterpret_cast<__attribute__((address_space(3))) A*>(tile + Places::offset_below(first, rows)) =
          value;
    }
  };

  // A run of elements from a unit on: one unit, or two if A is twice as long.
  template <class A>
  FA_DEVICE static A read(LdsBytes tile, int row, int unit) {
    if constexpr (sizeof(A) == sizeof(u32x4)) {
      return *reinterpret_cast<__attribute__((address_space(3))) A*>(tile + offset(row, unit));
    } else {
      A run;
      run.lo = read<u32x4>(tile, row, unit);
      run.hi = read<u32x4>(tile, row, unit + 1);
      return run;
    }
  }
};

template <int kRows, int kRowBytes, int kPeriod, bool kPadded = false, int kBlock = kPeriod>
using LdsTile = PlacedTile<Swizzle<kRows, kRowBytes, kPeriod, kPadded, kBlock>>;

// Rows of a tile of columns. A permutation takes 8.
template <class Unit>
inline constexpr int kTileRows = Unit::kN < 8 ? 8 : Unit::kN;

// A tile whose rows are the columns of a step. With several columns per lane, lanes 16 apart read rows 8
// apart, and the LDS may serve them together.
template <class Unit, int kRowBytes, bool kPadded>
using ColumnTile =
    LdsTile<kTileRows<Unit>, kRowBytes, kTileRows<Unit>, kPadded, Unit::kColumns == 1 ? kTileRows<Unit> : 8>;

// One unit of each of a lane's columns, which are rows of the tile.
template <class Unit, class Tile>
FA_DEVICE typename Unit::B read_columns(LdsBytes tile, int lane, int unit) {
  typename Unit::B b;
#pragma unroll
  for (int c = 0; c < Unit::kColumns; ++c) {
    if constexpr (Unit::kColumns == 1) {
      b.column[c] = Tile::template read<typename Unit::A>(tile, Unit::column(lane, c), unit);
    } else {
      static_assert(4 % Unit::kColumns == 0 && Unit::column(0, Unit::kColumns - 1) == Unit::kColumns - 1);
      b.column[c] = Tile::template read_next<typename Unit::A>(tile, Unit::column(lane, 0), c, unit);
    }
  }
  return b;
}

}  // namespace fa
