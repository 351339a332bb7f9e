// The way of a K or V tile from global memory through registers into LDS, shared by all threads of a
// workgroup.  `load` begins it, `store` ends it; the time between hides the memory latency.
#pragma once

#include "fa/tile/lds_tile.hpp"
#include "fa/tile/window.hpp"

namespace fa {

// Calls `action(i, index)` for the pieces of `kPieces` that a thread has: its i-th has that index.  Where
// threads are left over at the end, they are whole waves.
template <int kPieces, int kThreads, int kWave, class Action>
FA_DEVICE void for_pieces(int thread, Action action) {
  static_assert(kPieces % kWave == 0, "whole waves have nothing to do");
#pragma unroll
  for (int i = 0; i * kThreads < kPieces; ++i) {
    if ((i + 1) * kThreads <= kPieces || uniform(thread) < kPieces - i * kThreads) {
      action(i, thread + i * kThreads);
    }
  }
}

// K as it is: row `key` of the tile goes to LDS row slot_of_row(key).
template <class Layout, int kKeys, int kHeadDim, int kThreads, bool kPadded>
struct KeyStage {
  using Tile = LdsTile<kKeys, kHeadDim * 2, Layout::kM, kPadded>;
  static constexpr int kPieces = kKeys * Tile::kUnits;
  static constexpr int kLoads = (kPieces + kThreads - 1) / kThreads;
  // A thread's pieces are one unit of rows that are whole periods of slots apart: one address for all.
  static constexpr int kApart = kThreads / Tile::kUnits;
  static constexpr bool kNear = kPadded && kThreads % Tile::kUnits == 0 && kApart % Layout::kM == 0 &&
                                Layout::slot_of_row(Layout::kM, kKeys) == Layout::kM;

  u32x4 unit[kLoads];

  template <class Source>
  FA_DEVICE void load(const Source& source, int thread) {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const int row = kNear ? thread / Tile::kUnits + i * kApart : index / Tile::kUnits;
      unit[i] = source.template read<u32x4>(source.group(row), row, index % Tile::kUnits * 16);
    });
  }

  template <class Convert>
  FA_DEVICE void store(LdsBytes tile, Convert& convert, int thread) const {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      if constexpr (kNear) {
        store_near(place(tile, thread), convert, i);
      } else {
        *reinterpret_cast<Piece>(place(tile, index)) = convert(unit[i]);
      }
    });
  }

  // Where a thread's first piece goes.
  FA_DEVICE static LdsBytes place(LdsBytes tile, int thread) {
    return tile + Tile::offset(Layout::slot_of_row(thread / Tile::kUnits, kKeys), thread % Tile::kUnits);
  }

  // As `store`, all at constant distances from there.
  template <class Convert>
  FA_DEVICE void store_from(LdsBytes place, Convert& convert, int thread) const {
    static_assert(kNear, "one address for all");
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int) { store_near(place, convert, i); });
  }

 private:
  using Piece = __attribute__((address_space(3))) u32x4*;

  template <class Convert>
  FA_DEVICE void store_near(LdsBytes place, Convert& convert, int i) const {
    *reinterpret_cast<Piece>(Tile::period(place, i * (kApart / Layout::kM))) = convert(unit[i]);
  }
};

// V transposed: LDS row slot_of_row(d) holds element d of all keys of the tile, so that a lane reads
// consecutive keys at once.  A thread turns blocks of 4 keys by kWidth elements.
template <class Layout, int kKeys, int kHeadDim, int kThreads, bool kPadded>
struct ValueStage {
  using Tile = LdsTile<kHeadDim, kKeys * 2, Layout::kM, kPadded>;
  // As narrow as leaves every thread one block, so that none waits; 4, 8 or 16 bytes of each key.
  static constexpr int kFair = kKeys * kHeadDim / 4 / kThreads;
  static constexpr int kWidth = kFair <= 2 ? 2 : kFair <= 4 ? 4 : 8;
  static constexpr int kBlocks = kHeadDim / kWidth;
  static constexpr int kPieces = kKeys / 4 * kBlocks;
  static constexpr int kLoads = (kPieces + kThreads - 1) / kThreads;
  typedef uint32_t Words __attribute__((ext_vector_type(kWidth / 2)));

  static constexpr uint32_t kLow = 0x05040100, kHigh = 0x07060302;  // of two words, for v_perm
  // The stores turn the blocks: four times as many LDS instructions, and none of the VALU.
  static constexpr bool kByHalves = kPadded && Layout::kStoresHalves;

  Words key[kLoads][4];

  template <class Source>
  FA_DEVICE void load(const Source& source, int thread) {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const int row = index / kBlocks * 4;
      const typename Source::Group group = source.group(row);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        key[i][j] = source.template read<Words>(group, row + j, index % kBlocks * kWidth * 2);
      }
    });
  }

  template <class Convert>
  FA_DEVICE void store(LdsBytes tile, Convert& convert, int thread) const {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const Words rows[4] = {convert(key[i][0]), convert(key[i][1]), convert(key[i][2]), convert(key[i][3])};
#pragma unroll
      for (int word = 0; word < kWidth / 2; ++word) {
        store_element(tile, rows, index, word * 2, kLow);
        store_element(tile, rows, index, word * 2 + 1, kHigh);
      }
    });
  }

 private:
  FA_DEVICE static void store_element(LdsBytes tile, const Words* key, int index, int element,
                                      uint32_t half) {
    const int word = element / 2;
    const int block = index / kBlocks;
    const int d = index % kBlocks * kWidth + element;
    const int row = Layout::slot_of_row(d, kHeadDim);
    if constexpr (kByHalves) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t bits = key[j][word] >> (half == kLow ? 0 : 16);
        Tile::write_half(tile, row, block / 2, (block % 2 * 4 + j) * 2, bits);
      }
    } else {
      const u32x2 keys = {__builtin_amdgcn_perm(key[1][word], key[0][word], half),
                          __builtin_amdgcn_perm(key[3][word], key[2][word], half)};
      Tile::write(tile, row, block / 2, block % 2 * 8, keys);
    }
  }
};

}  // namespace fa
