// Moves a wave's slice of a tile whose rows are both K and V: from global memory through registers into the
// wave's own LDS. It is stored as rows (operand A of a product over head_dim), and V's part also transposed
// (operand A of a product over keys). Each element is loaded once, and waves are independent.
#pragma once

#include "device/memory/lds_tile.hpp"

namespace fa {

// The row stride is two units more than a multiple of eight, and every fourth row is a unit further. Neither
// reads of eight successive rows nor writes of every fourth row conflict in a bank. One address serves all of
// a lane's units.
template <int kRows, int kRowBytes, int kPeriod>
struct SteppedRows {
  static constexpr int kUnits = kRowBytes / 16;
  static constexpr bool kPermuted = false;
  static constexpr int kStride = kRowBytes + (10 - kUnits % 8) % 8 * 16;
  static constexpr int kPeriodBytes = kPeriod * kStride + kPeriod / 4 * 16;
  static constexpr int kBytes = kRows / kPeriod * kPeriodBytes;
  static_assert(kRowBytes % 16 == 0 && kRows % kPeriod == 0 && kPeriod % 4 == 0, "whole units and periods");

  static constexpr int offset(int row, int unit) { return row * kStride + (row / 4 + unit) * 16; }
};

// Of `kKeys` rows, a slice has kValues elements of V's part and kRest of the rest of K. Each of kSlices waves
// has one slice. ValueTile is the whole V^T. Each slice has its own rows in it.
template <class Layout, int kKeys, int kValues, int kRest, int kSlices, class ValueTile>
struct SliceStage {
  using Tile = PlacedTile<SteppedRows<kKeys, (kValues + kRest) * 2, Layout::kM>>;
  static constexpr int kBlocks = kKeys / 4;  // blocks of four keys; neighbouring lanes have the next block
  static constexpr int kLanes = Layout::kWave / kBlocks;  // lanes with the same keys
  static constexpr int kLoads = kValues / 8 / kLanes;
  static constexpr int kRestUnits = kRest / 8;
  static_assert(kLoads * kLanes * 8 == kValues && kLanes == 4 * kRestUnits, "every lane moves as much");

  u32x4 piece[kLoads][4];  // the keys of a block
  u32x4 rest;              // one key

  // The first of a thread's rows. All of them are in one group.
  FA_DEVICE static int row_of(int thread) { return block_of(thread % Layout::kWave) * 4; }

  template <class Source>
  FA_DEVICE void load(const Source& source, typename Source::Group group, int thread) {
    const int lane = thread % Layout::kWave, slice = thread / Layout::kWave, row = row_of(thread);
    const int byte = slice * (kValues * 2) + lane_of(lane) * 16;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        piece[i][j] = source.template read<u32x4>(group, row + j, byte + i * (kLanes * 16));
      }
    }
    rest = source.template read<u32x4>(group, row + rest_row(lane),
                                       kSlices * kValues * 2 + slice * (kRest * 2) + rest_unit(lane) * 16);
  }

  FA_DEVICE void store_rows(LdsBytes tile, int lane) const {
    const int row = block_of(lane) * 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        Tile::write(tile, Layout::slot_of_row(row + j, kKeys), lane_of(lane) + i * kLanes, 0, piece[i][j]);
      }
    }
    Tile::write(tile, Layout::slot_of_row(row + rest_row(lane), kKeys), kValues / 8 + rest_unit(lane), 0,
                rest);
  }

  // `tile`: the rows of V^T of this slice.
  FA_DEVICE void store_transposed(LdsBytes tile, int lane) const {
    const int block = block_of(lane);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const uint32_t half = e % 2 == 0 ? 0x05040100 : 0x07060302;  // halves of two words, for v_perm
        const u32x4* const key = piece[i];
        const u32x2 words = {__builtin_amdgcn_perm(key[1][e / 2], key[0][e / 2], half),
                             __builtin_amdgcn_perm(key[3][e / 2], key[2][e / 2], half)};
        const int row = Layout::slot_of_row((lane_of(lane) + i * kLanes) * 8 + e, kValues);
        ValueTile::write(tile, row, block / 2, block % 2 * 8, words);
      }
    }
  }

 private:
  FA_DEVICE static int block_of(int lane) { return lane % kBlocks; }
  // Number among the lanes with the same keys.
  FA_DEVICE static int lane_of(int lane) { return lane / kBlocks; }
  FA_DEVICE static int rest_row(int lane) { return lane_of(lane) % 4; }
  FA_DEVICE static int rest_unit(int lane) { return lane_of(lane) / 4; }
};

}  // namespace fa
