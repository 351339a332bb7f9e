// The way of a K or V tile from global memory through registers into LDS, shared by all threads of a
// workgroup.  `load` begins it, `store` ends it; the time between hides the memory latency.
#pragma once

#include "fa/tile/lds_tile.hpp"
#include "fa/tile/window.hpp"

namespace fa {

// K as it is: row `key` of the tile goes to LDS row slot_of_row(key).
template <class Layout, int kKeys, int kHeadDim, int kThreads>
struct KeyStage {
  using Tile = LdsTile<kKeys, kHeadDim * 2, Layout::kM>;
  static constexpr int kLoads = kKeys * Tile::kUnits / kThreads;
  static_assert(kLoads * kThreads == kKeys * Tile::kUnits, "every thread moves the same number of units");

  u32x4 unit[kLoads];

  template <class Window>
  FA_DEVICE void load(const Window& window, int thread) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int index = thread + i * kThreads;
      unit[i] = window.template read<u32x4>(index / Tile::kUnits, index % Tile::kUnits * 16);
    }
  }

  FA_DEVICE void store(LdsBytes tile, int thread) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int index = thread + i * kThreads;
      Tile::write(tile, Layout::slot_of_row(index / Tile::kUnits, kKeys), index % Tile::kUnits, 0, unit[i]);
    }
  }
};

// V transposed: LDS row slot_of_row(d) holds element d of all keys of the tile, so that a lane reads
// consecutive keys at once.  A thread turns a block of 4 keys by kWidth elements.
template <class Layout, int kKeys, int kHeadDim, int kThreads>
struct ValueStage {
  using Tile = LdsTile<kHeadDim, kKeys * 2, Layout::kM>;
  static constexpr int kWidth = kKeys * kHeadDim / 4 / kThreads;
  static_assert(kWidth == 2 || kWidth == 4 || kWidth == 8, "a thread reads 4, 8 or 16 bytes of each key");
  static constexpr int kBlocks = kHeadDim / kWidth;
  typedef uint32_t Words __attribute__((ext_vector_type(kWidth / 2)));

  Words key[4];

  template <class Window>
  FA_DEVICE void load(const Window& window, int thread) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      key[i] = window.template read<Words>(thread / kBlocks * 4 + i, thread % kBlocks * kWidth * 2);
    }
  }

  FA_DEVICE void store(LdsBytes tile, int thread) const {
    constexpr uint32_t kLow = 0x05040100, kHigh = 0x07060302;
#pragma unroll
    for (int word = 0; word < kWidth / 2; ++word) {
      store_element(tile, thread, word * 2, kLow);
      store_element(tile, thread, word * 2 + 1, kHigh);
    }
  }

 private:
  FA_DEVICE void store_element(LdsBytes tile, int thread, int element, uint32_t half) const {
    const int word = element / 2;
    const u32x2 keys = {__builtin_amdgcn_perm(key[1][word], key[0][word], half),
                        __builtin_amdgcn_perm(key[3][word], key[2][word], half)};
    const int block = thread / kBlocks;
    const int d = thread % kBlocks * kWidth + element;
    Tile::write(tile, Layout::slot_of_row(d, kHeadDim), block / 2, block % 2 * 8, keys);
  }
};

}  // namespace fa
