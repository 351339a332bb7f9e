// Moves tiles from global memory through registers into LDS twice: row by row, as operand A of a product that
// contracts over head_dim, and transposed, as that of one which contracts over the rows.  Several tensors at
// once; the pieces of all of them are shared out among the threads of a workgroup.
#pragma once

#include "fa/tile/stage.hpp"

namespace fa {

// kOverlaid: both forms have the same place, one after the other.
template <class Layout, int kRows, int kHeadDim, int kThreads, bool kPadded, int kTensors, bool kOverlaid>
struct TurnedStage {
  using RowTile = LdsTile<kRows, kHeadDim * 2, Layout::kM, kPadded>;
  using TurnedTile = LdsTile<kHeadDim, kRows * 2, Layout::kM, kPadded>;
  static constexpr int kTurnedAt = kOverlaid ? 0 : kTensors * RowTile::kBytes;
  static constexpr int kRowsEnd = kTensors * RowTile::kBytes;
  static constexpr int kTurnedEnd = kTurnedAt + kTensors * TurnedTile::kBytes;
  static constexpr int kBytes = kRowsEnd > kTurnedEnd ? kRowsEnd : kTurnedEnd;
  // A piece is 4 rows by 4 elements.
  static constexpr int kAcross = kHeadDim / 4;
  static constexpr int kPieces = kRows / 4 * kAcross;  // of one tensor
  static constexpr int kLoads = (kTensors * kPieces + kThreads - 1) / kThreads;
  static_assert(kPieces % Layout::kWave == 0, "a wave's pieces are of one tensor");

  u32x2 row[kLoads][4];

  // Where a tensor's two forms are.
  FA_DEVICE static LdsBytes rows_of(LdsBytes tiles, int tensor) { return tiles + tensor * RowTile::kBytes; }
  FA_DEVICE static LdsBytes turned_of(LdsBytes tiles, int tensor) {
    return tiles + kTurnedAt + tensor * TurnedTile::kBytes;
  }

  // `view(tensor)` is that of the tile's rows.
  template <class View>
  FA_DEVICE void load(const View& view, int thread) {
    for_pieces<kTensors * kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const auto source = view(tensor_of(index));
      const int first = piece(index) / kAcross * 4, byte = piece(index) % kAcross * 8;
#pragma unroll
      for (int j = 0; j < 4; ++j) row[i][j] = source.template read<u32x2>(first + j, byte);
    });
  }

  FA_DEVICE void store_rows(LdsBytes tiles, int thread) const {
    for_pieces<kTensors * kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const LdsBytes rows = rows_of(tiles, tensor_of(index));
      const int block = piece(index) / kAcross, column = piece(index) % kAcross;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        RowTile::write(rows, Layout::slot_of_row(block * 4 + j, kRows), column / 2, column % 2 * 8,
                       row[i][j]);
      }
    });
  }

  FA_DEVICE void store_turned(LdsBytes tiles, int thread) const {
    for_pieces<kTensors * kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const LdsBytes turned = turned_of(tiles, tensor_of(index));
      const int block = piece(index) / kAcross, column = piece(index) % kAcross;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const uint32_t half = e % 2 == 0 ? 0x05040100 : 0x07060302;  // of two words, for v_perm
        const u32x2 words = {__builtin_amdgcn_perm(row[i][1][e / 2], row[i][0][e / 2], half),
                             __builtin_amdgcn_perm(row[i][3][e / 2], row[i][2][e / 2], half)};
        TurnedTile::write(turned, Layout::slot_of_row(column * 4 + e, kHeadDim), block / 2, block % 2 * 8,
                          words);
      }
    });
  }

 private:
  FA_DEVICE static int tensor_of(int index) { return kTensors == 1 ? 0 : uniform(index / kPieces); }
  FA_DEVICE static int piece(int index) { return kTensors == 1 ? index : index % kPieces; }
};

}  // namespace fa
