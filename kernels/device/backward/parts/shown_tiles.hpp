// Tiles that a mask hides from a workgroup of gradients, which skips them, by what fa_mask_ranges_* left in
// dq (masks/shown_range.hpp). Only fa_bwd_dq_masked_*, the last of the kernels, overwrites it.
#pragma once

#include "device/call/backward_arguments.hpp"
#include "device/call/config.hpp"
#include "device/masks/shown_range.hpp"

namespace fa {

FA_DEVICE const MaskedBwdParams& ranged_here(BwdArguments arguments) {
  return reinterpret_cast<const MaskedBwdParams&>(loaded_here(arguments));
}

FA_DEVICE u32x4 shown_range(const BwdGradient& dq, int batch, int head, int row) {
  return *shown_place(dq.data, batch * dq.batch + head * dq.head, dq.row, row);
}

// Also the wave's own tiles: loops look at tiles before the first and behind the last, and must see none.
template <class Tiles>
FA_DEVICE void keep_between(int begin, int end, Tiles& tiles) {
  tiles.begin = tiles.begin < begin ? begin : tiles.begin;
  tiles.end = tiles.end < end ? tiles.end : end;
  tiles.wave_begin = tiles.wave_begin < begin ? begin : tiles.wave_begin;
  tiles.wave_end = tiles.wave_end < end ? tiles.wave_end : end;
}

// Of dq: the tiles of keys that the mask shows to any of the workgroup's rows from `first_row` on.
template <class B>
FA_DEVICE void keep_shown_keys(const B& block, int first_row, typename B::Tiles& tiles) {
  constexpr int kRows = B::Unit::kN, kWaves = B::kConfig.waves;
  static_assert((kWaves & (kWaves - 1)) == 0 && kWaves <= B::Unit::kWave, "lanes of a wave read for all");
  const MaskedBwdParams& p = ranged_here(block.arguments);
  if (p.has_ranges == 0) return;
  // Each lane reads the keys of one wave's rows. Waves without rows use those of the last rows.
  const int last = (block.sequence.seqlen_q - 1) / kRows * kRows;
  const int row = first_row + block.lane % kWaves * kRows;
  const u32x4 read = shown_range(p.bwd.dq, block.batch, block.head, row < last ? row : last);
  const auto least = [&](int i) {
    return uniform(least_of_lanes<kWaves - 1>(static_cast<int>(read[i]), block.lane));
  };
  const int begin = least(0) / B::kKeys * B::kKeys, end = -least(1);
  keep_between(begin, end, tiles);
  // Otherwise no barrier comes before a wave writes its rows of dq, and others may still have to read.
  if (tiles.begin >= tiles.end) workgroup_barrier();
}

// Of dk and dv: the tiles of queries to which the mask shows any of the workgroup's keys from `first_key` on.
template <class B>
FA_DEVICE void keep_shown_rows(const B& block, int first_key, typename B::Tiles& tiles) {
  constexpr int kRows = B::Unit::kN, kWave = B::Unit::kWave;
  const MaskedBwdParams& p = ranged_here(block.arguments);
  if (p.has_ranges == 0 || tiles.begin >= tiles.end) return;
  const int group = uniform(p.bwd.nheads / p.bwd.nheads_k), heads = p.mask_head == 0 ? 1 : group;
  // A tile of queries may have more rows than a wave, and the last one rows beyond the last.
  const int rows = tiles.end < block.sequence.seqlen_q ? tiles.end : block.sequence.seqlen_q;
  int begin = tiles.end, end = 0;
  for (int i = 0; i < heads; ++i) {
    // Each lane reads the keys of some rows.
    for (int first = tiles.begin / kRows * kRows; first < rows; first += kWave * kRows) {
      const int row = first + block.lane * kRows;
      bool shows = false;
      if (row < rows) {
        const u32x4 read = shown_range(p.bwd.dq, block.batch, block.head_k * group + i, row);
        const int from = static_cast<int>(read[0]), minus_to = static_cast<int>(read[1]);
        shows = from < first_key + B::kTile.block_n && -minus_to > first_key;
      }
      const uint64_t lanes = lanes_with<kWave>(shows);
      if (lanes == 0) continue;
      const int shown = first + __builtin_ctzll(lanes) * kRows;
      const int past = first + (64 - __builtin_clzll(lanes)) * kRows;
      begin = begin < shown ? begin : shown;
      end = end < past ? past : end;
    }
  }
  begin = begin / B::kQueries * B::kQueries;
  keep_between(begin, end, tiles);
}

}  // namespace fa
