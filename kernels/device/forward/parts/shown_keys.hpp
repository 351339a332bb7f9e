// The tiles of keys shown by a mask to a workgroup of fa_fwd_masked_*. It writes its rows of out after all of
// its waves have read them there (masks/shown_range.hpp).
#pragma once

#include "device/arch/device.hpp"
#include "device/forward/parts/block.hpp"
#include "device/masks/shown_range.hpp"
#include "device/masks/tile_range.hpp"

namespace fa {

// Replaces MaskedTiles in kernels without a mask.
template <class B>
struct AllTiles {
  FA_DEVICE AllTiles(const B&, int) {}
  FA_DEVICE typename B::Tiles seen_of(const typename B::Tiles& tiles) const { return tiles; }
};

// The tiles of keys needed by the rows of a workgroup, and the ones with a mask.
template <class B>
struct MaskedTiles {
  static constexpr int kWaves = B::kConfig.waves;
  static_assert((kWaves & (kWaves - 1)) == 0 && kWaves <= B::Unit::kWave, "lanes of a wave read for all");
  static_assert(B::kKeys % 16 == 0, "tiles begin where ranges may");

  int seen_begin = 0, seen_end = kNoKey, full_begin = 0, full_end = 0;

  FA_DEVICE MaskedTiles(const B& block, int block_row) {
    const FwdParams& p = block.params;
    if constexpr (B::kMasks != Masks::boolean) {
      const MaskedParams& mask = masked_params(block);
      if (!has_ranges(mask.mask_kind, mask.mask_head, mask.mask_row)) return;
    }
    // Each lane reads the keys of one wave's rows. Waves without rows use those of the last rows.
    const int last = (block.sequence.seqlen_q - 1) / B::Unit::kN * B::Unit::kN;
    const int row = block_row + block.lane % kWaves * B::Unit::kN;
    const int64_t at = block.batch * p.o_batch + block.head * p.o_head;
    const u32x4 read = *shown_place(p.out, at, p.o_row, row < last ? row : last);
    const auto least = [&](int i) {
      return uniform(least_of_lanes<kWaves - 1>(static_cast<int>(read[i]), block.lane));
    };
    seen_begin = least(0), seen_end = -least(1), full_begin = -least(2), full_end = least(3);
  }

  FA_DEVICE typename B::Tiles seen_of(typename B::Tiles tiles) const {
    const int begin = seen_begin / B::kKeys * B::kKeys;
    tiles.begin = tiles.begin < begin ? begin : tiles.begin;
    tiles.end = tiles.end < seen_end ? tiles.end : seen_end;
    // Otherwise no barrier comes before a wave writes its rows of out, and others may still have to read.
    if (tiles.begin >= tiles.end) workgroup_barrier();
    return tiles;
  }

  // Whether the mask may hide a key of the tile from a row.
  FA_DEVICE Flag needs_mask(int first) const {
    return {(first - full_begin) | (full_end - B::kKeys - first)};
  }
};

}  // namespace fa
