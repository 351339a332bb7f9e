// Tiles stored once in LDS, as rows, and read both ways: by rows (operand A of a product over head_dim) and
// transposed, "turned" (operand A of a product over rows).
#pragma once

#include "device/memory/stage.hpp"

namespace fa {

// A column of 4 rows of 16 elements: see turned_row.
FA_DEVICE u32x2 read_turned(LdsBytes place) {
  typedef short Four __attribute__((ext_vector_type(4)));
  using Words = __attribute__((address_space(3))) Four*;
  return __builtin_bit_cast(u32x2, __builtin_amdgcn_ds_read_tr16_b64_v4i16((Words)place));
}

// A tile of rows as a lane's turned operands: `read(i, step)` is operand A of result step `step` (32 elements
// of head_dim), at step i of the contraction over rows.
template <class Unit, class Rows>
struct TurnedTile {
  using A = typename Unit::A;
  LdsBytes first;

  FA_DEVICE TurnedTile(LdsBytes tile, int lane)
      : first(tile + Rows::offset(turned_row(lane), 0) + turned_byte(lane)) {}
  FA_DEVICE A read(int i, int step) const {
    static_assert(Unit::kM == 32 && Unit::kK == 16 && Unit::kRun == 8, "rows are in the slots of MFMA");
    A a;
    a.lo = read_turned(first + Rows::offset(i * 16, step * 4));
    a.hi = read_turned(first + Rows::offset(i * 16 + 8, step * 4));
    return a;
  }
};
template <class Tile>
inline constexpr bool kIsTurned = false;
template <class Unit, class Rows>
inline constexpr bool kIsTurned<TurnedTile<Unit, Rows>> = true;

template <class Unit, int kRows, int kHeadDim, int kThreads>
struct TurnedStage
    : KeyStage<Unit, kRows, kHeadDim, kThreads, false, PlacedTile<FannedRows<kRows, kHeadDim * 2>>> {
  using Tile = PlacedTile<FannedRows<kRows, kHeadDim * 2>>;
  using RowTile = Tile;
  static constexpr int kBytes = Tile::kBytes;

  FA_DEVICE static LdsBytes rows_of(LdsBytes tile, int) { return tile; }
  using Turned = TurnedTile<Unit, Tile>;
};

// Two such tiles of each of several tensors, used in turn. Interface of TransposedStage.
template <class Unit, int kRows, int kHeadDim, int kThreads, int kTensors>
struct TurnedTensors {
  using RowTile = PlacedTile<FannedRows<kRows, kHeadDim * 2>>;
  using TransposedTile = TurnedTile<Unit, RowTile>;
  static constexpr int kTilesBytes = kTensors * RowTile::kBytes;
  static constexpr int kBytes = 2 * kTilesBytes;
  static constexpr int kRowsEnd = kTilesBytes;  // of the first tile
  static constexpr bool kFixed = false;
  // Threads sharing one tensor's pieces.
  static constexpr int kSharers = kThreads / kTensors;
  static constexpr int kPieces = kRows * RowTile::kUnits;
  static constexpr int kLoads = (kPieces + kSharers - 1) / kSharers;
  static_assert(kSharers % Unit::kWave == 0, "a wave's pieces are of one tensor");

  u32x4 unit[kLoads];

  FA_DEVICE static LdsBytes rows_of(LdsBytes tiles, int tensor) { return tiles + tensor * RowTile::kBytes; }
  FA_DEVICE static LdsBytes transposed_of(LdsBytes tiles, int tensor) { return rows_of(tiles, tensor); }
  FA_DEVICE static int tensor_of_wave(int thread) { return uniform(thread / kSharers); }

  template <class View>
  FA_DEVICE void load(const View& view, int thread) {
    const auto source = view(tensor_of_wave(thread));
    for_pieces<kPieces, kSharers, Unit::kWave>(thread % kSharers, [&](int i, int index) {
      unit[i] = source.template read<u32x4>(index / RowTile::kUnits, index % RowTile::kUnits * 16);
    });
  }
  FA_DEVICE void store_rows(LdsBytes tiles, int thread) const {
    const LdsBytes rows = rows_of(tiles, tensor_of_wave(thread));
    for_pieces<kPieces, kSharers, Unit::kWave>(thread % kSharers, [&](int i, int index) {
      RowTile::write(rows, Unit::slot_of_row(index / RowTile::kUnits, kRows), index % RowTile::kUnits, 0,
                     unit[i]);
    });
  }

  // With a thread's addresses kept: its first piece in memory, relative to the tile, and in LDS. The others
  // are whole blocks of 16 rows below.
  static constexpr int kApart = kSharers / RowTile::kUnits;  // rows
  FA_DEVICE static u32x4 places(uint32_t row_bytes, int thread) {
    static_assert(kPieces % kSharers == 0 && kApart % 16 == 0 && Unit::slot_of_row(16, kRows) == 16);
    const int index = thread % kSharers, row = index / RowTile::kUnits, column = index % RowTile::kUnits;
    const int rows =
        tensor_of_wave(thread) * RowTile::kBytes + RowTile::offset(Unit::slot_of_row(row, kRows), column);
    return {row * row_bytes + column * 16, static_cast<uint32_t>(rows), 0, 0};
  }
  template <class View>
  FA_DEVICE void load_from(u32x4 places, const View& view) {
    const uint32_t from = here(static_cast<uint32_t>(places[0]));
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      unit[i] = view.template read_at<u32x4>(static_cast<int>(from + i * kApart * view.row_bytes));
    }
  }
  FA_DEVICE void store_rows_to(u32x4 places, LdsBytes tiles) const {
    const LdsBytes first = tiles + here(static_cast<int>(places[1]));
#pragma unroll
    for (int i = 0; i < kLoads; ++i) RowTile::write(first, i * kApart, 0, 0, unit[i]);
  }

  // Makes the loaded registers undefined.
  FA_DEVICE void forget() {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) unit[i] = anything<u32x4>();
  }
};

}  // namespace fa
