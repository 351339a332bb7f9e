// Moves a K or V tile from global memory through registers into LDS, divided among all threads of a
// workgroup. `load` starts the loads and `store` ends them. The work in between hides the memory latency.
#pragma once

#include "device/memory/lds_tile.hpp"
#include "device/memory/view.hpp"

namespace fa {

// Calls `action(i, index)` for each of a thread's pieces: the i-th is piece `index` of kPieces. Only whole
// waves have one piece fewer.
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

// K as rows: row `key` of the tile goes to LDS row slot_of_row(key). kBytes: of an element in memory; in LDS
// it has two.
template <class Layout, int kKeys, int kHeadDim, int kThreads, bool kPadded,
          class Place = LdsTile<kKeys, kHeadDim * 2, Layout::kM, kPadded>, int kBytes = 2>
struct KeyStage {
  using Tile = Place;
  static constexpr int kPieces = kKeys * Tile::kUnits;
  static constexpr int kLoads = (kPieces + kThreads - 1) / kThreads;
  // A thread's pieces are the same unit of rows whole periods apart, so one address serves all.
  static constexpr int kApart = kThreads / Tile::kUnits;
  static constexpr bool kNear = kPadded && kThreads % Tile::kUnits == 0 && kApart % Layout::kM == 0 &&
                                Layout::slot_of_row(kApart, kKeys) == kApart;

  using Piece = Choice<kBytes == 2, u32x4, u32x2>;  // a unit of LDS, in memory

  Piece unit[kLoads];

  template <class Source>
  FA_DEVICE void load(const Source& source, int thread) {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const int row = kNear ? thread / Tile::kUnits + i * kApart : index / Tile::kUnits;
      unit[i] = source.template read<Piece>(source.group(row), row, index % Tile::kUnits * (8 * kBytes));
    });
  }

  template <class Convert>
  FA_DEVICE void store(LdsBytes tile, Convert& convert, int thread) const {
    store_from(place(tile, thread), convert, thread);
  }

  // Address of a thread's first piece, relative to the tile.
  FA_DEVICE static int offset(uint32_t row_bytes, int thread) {
    return static_cast<int>(thread / Tile::kUnits * row_bytes + thread % Tile::kUnits * 16);
  }

  // Base of a thread's stores: its first piece if all others are at constant distances, else the tile.
  FA_DEVICE static LdsBytes place(LdsBytes tile, int thread) {
    if constexpr (!kNear) return tile;
    return tile + Tile::offset(Layout::slot_of_row(thread / Tile::kUnits, kKeys), thread % Tile::kUnits);
  }

  template <class Convert>
  FA_DEVICE void store_from(LdsBytes place, Convert& convert, int thread) const {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const u32x4 words = convert(unit[i]);
      if constexpr (kNear) {
        Tile::write(Tile::period(place, i * (kApart / Layout::kM)), 0, 0, 0, words);
      } else {
        Tile::write(place, Layout::slot_of_row(index / Tile::kUnits, kKeys), index % Tile::kUnits, 0, words);
      }
    });
  }
};

// V transposed: LDS row slot_of_row(d) holds element d of all keys of the tile, so a lane reads consecutive
// keys at once. A thread transposes blocks of 4 keys by kWidth elements. kLanes neighbours have blocks of the
// same elements, the following lanes the next elements.
template <class Layout, int kKeys, int kHeadDim, int kThreads, bool kPadded, int kLanes, bool kByHalves,
          class Place = LdsTile<kHeadDim, kKeys * 2, Layout::kM, kPadded>, int kBytes = 2>
struct ValueStage {
  using Tile = Place;
  // Bytes of a block per key: 4, 8 or 16, small enough for as many threads as possible to have a block.
  static constexpr int kFair = kKeys * kHeadDim / 4 / kThreads;
  static constexpr bool kWholeWaves = kKeys / 4 * (kHeadDim / 8) % Layout::kWave == 0;  // of 8 elements a key
  static constexpr int kWidth = kFair <= 2 && kBytes == 2 ? 2 : kFair <= 4 || !kWholeWaves ? 4 : 8;
  static constexpr int kBlocks = kHeadDim / kWidth;
  static constexpr int kPieces = kKeys / 4 * kBlocks;
  static constexpr int kLoads = (kPieces + kThreads - 1) / kThreads;
  static_assert(kKeys / 4 % kLanes == 0, "neighbours have keys of their own");
  typedef uint32_t Words __attribute__((ext_vector_type(kWidth / 2)));
  typedef uint32_t Piece __attribute__((ext_vector_type(kBytes == 2 ? kWidth / 2 : kWidth / 4)));

  static constexpr uint32_t kLow = 0x05040100, kHigh = 0x07060302;  // for v_perm: halves of two words
  static_assert(!kByHalves || Layout::kStoresHalves, "the upper half of a register can be stored");

  Piece key[kLoads][4];

  template <class Source>
  FA_DEVICE void load(const Source& source, int thread) {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const int row = key_block(index) * 4;
      const typename Source::Group group = source.group(row);
      if constexpr (Source::kPlaced) {
        const int first = source.offset_of(row, column(index) * kWidth * kBytes);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          key[i][j] = source.template read_at<Piece>(first + static_cast<int>(j * source.row_bytes));
        }
        return;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        key[i][j] = source.template read<Piece>(group, row + j, column(index) * kWidth * kBytes);
      }
    });
  }

  template <class Convert>
  FA_DEVICE void store(LdsBytes tile, Convert& convert, int thread) const {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const Words rows[4] = {convert(key[i][0]), convert(key[i][1]), convert(key[i][2]), convert(key[i][3])};
#pragma unroll
      for (int word = 0; word < kWidth / 2; ++word) {
        store_element(tile, rows, index, word, kLow);
        store_element(tile, rows, index, word, kHigh);
      }
    });
  }

 private:
  // The 4 keys and the kWidth elements of piece `index`.
  FA_DEVICE static int key_block(int index) { return index / kLanes / kBlocks * kLanes + index % kLanes; }
  FA_DEVICE static int column(int index) { return index / kLanes % kBlocks; }

  // The element in one half of a piece's word. Codes are unpacked out of order (memory/codes.hpp).
  static constexpr int element_of(int word, uint32_t half) {
    const int high = half == kHigh ? 1 : 0;
    return kBytes == 2 ? word * 2 + high : word / 2 * 4 + word % 2 + high * 2;
  }

  FA_DEVICE static void store_element(LdsBytes tile, const Words* key, int index, int word, uint32_t half) {
    const int block = key_block(index);
    const int d = column(index) * kWidth + element_of(word, half);
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
