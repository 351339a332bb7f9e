// Tiles that are in LDS once, row by row, and read both ways: by rows, as operand A of a product that
// contracts over head_dim, and turned, as that of one which contracts over the rows.
#pragma once

#include "fa/tile/stage.hpp"

namespace fa {

// A column of 4 rows of 16 elements: see turned_row.
FA_DEVICE u32x2 read_turned(LdsBytes place) {
  typedef short Four __attribute__((ext_vector_type(4)));
  using Words = __attribute__((address_space(3))) Four*;
  return __builtin_bit_cast(u32x2, __builtin_amdgcn_ds_read_tr16_b64_v4i16((Words)place));
}

template <class Unit, int kRows, int kHeadDim, int kThreads>
struct TurnedStage
    : KeyStage<Unit, kRows, kHeadDim, kThreads, false, PlacedTile<FannedRows<kRows, kHeadDim * 2>>> {
  using Tile = PlacedTile<FannedRows<kRows, kHeadDim * 2>>;
  using RowTile = Tile;
  static constexpr int kBytes = Tile::kBytes;

  FA_DEVICE static LdsBytes rows_of(LdsBytes tile, int) { return tile; }

  // A lane's turned operands: `read(i, step)` is operand A of step `step` of the result (32 elements of
  // head_dim), at step i of the contraction over rows.
  struct Turned {
    using A = typename Unit::A;
    LdsBytes first;

    FA_DEVICE Turned(LdsBytes tile, int lane)
        : first(tile + Tile::offset(turned_row(lane), 0) + turned_byte(lane)) {}
    FA_DEVICE A read(int i, int step) const {
      static_assert(Unit::kM == 32 && Unit::kK == 16 && Unit::kRun == 8, "rows are in the slots of MFMA");
      A a;
      a.lo = read_turned(first + Tile::offset(i * 16, step * 4));
      a.hi = read_turned(first + Tile::offset(i * 16 + 8, step * 4));
      return a;
    }
  };
};

}  // namespace fa
