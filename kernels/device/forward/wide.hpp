// The forward kernel for head dims above 256, without features: waves divide head_dim.
//
// The waves of a group share a step's queries. Each has a slice of head_dim: of Q in registers, and of O. The
// product of its slices of Q and K is a part of each score. All waves add up the parts of their group, in LDS
// in the place of K, and compute the same softmax. Then each multiplies by its slice of V. No product is
// computed twice. With few rows, workgroups have parts of the keys, combined by fa_combine_*.
#pragma once

#include "device/forward/forward.hpp"
#include "device/forward/parts/score_parts.hpp"

namespace fa {

template <class B>
FA_DEVICE typename B::Q load_slice(const B& block, int wave_row, typename B::Convert& convert) {
  constexpr int kSliceBytes = B::kRowBytes / B::kSlices;
  HeadRows rows = query_rows(block);
  rows.base += block.slice() * kSliceBytes;
  const BufferView<B::Unit::kN, kSliceBytes, B::kTraits.buffer_word3> view(rows, wave_row);
  return typename B::Q(block.wave_lds, view, QuerySign(block.params.scale), convert, block.lane);
}

// The keys seen by the block's rows within the workgroup's part.
template <class B>
FA_DEVICE typename B::Tiles tiles_of_part(const B& block, int block_row, int wave_row) {
  typename B::Tiles tiles = block.tiles(block_row, wave_row);
  if (block.params.splits > 1) {
    const Part part = part_of(tiles.begin / B::kKeys, (tiles.end + B::kKeys - 1) / B::kKeys,
                              block.part(block.params), block.params.splits);
    tiles.begin = part.begin * B::kKeys;
    tiles.end = part.end * B::kKeys;
  }
  // Or each tile's address would be a 64-bit product.
  __builtin_assume(tiles.begin >= 0 && tiles.end >= 0);
  return tiles;
}

// Computes and stores the rows from block_row on.
template <class B>
FA_DEVICE void attend_in_slices(const B& block, int block_row) {
  using Scores = typename B::Scores;
  static_assert(B::kConfig.schedule == Schedule::two_stages, "tiles.toml: fwd_wide has one schedule");
  const FwdParams& params = block.params;
  const int wave_row = block_row + block.wave / B::kSlices * B::Unit::kN;
  const typename B::Tiles tiles = tiles_of_part(block, block_row, wave_row);
  const float scale = params.scale == 0 ? 1 : __builtin_fabsf(params.scale);
  typename B::Softmax softmax(scale * Bias::kLog2e);
  typename B::Convert convert;
  typename B::Out o;
  clear<B>(o);
  if (tiles.begin < tiles.end) {
    const int slice_at = block.slice() * (B::kRowBytes / B::kSlices);
    const KeyPlace keys = key_place(block, 0, block.sequence.seqlen_k);
    const Source k = source_of(keys, params.k, params.k_batch, params.k_head, params.k_row);
    const Source v = source_of(keys, params.v, params.v_batch, params.v_head, params.v_row);
    const typename B::Q query = load_slice(block, wave_row, convert);
    const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
    // In the place of K's tile.
    static_assert(ScoreParts<B>::kBytes * B::kConfig.waves <= B::Keys::Tile::kBytes, "all parts fit");
    const ScoreParts<B> parts(block.k_tile, block);
    typename B::Keys next_k;
    typename B::Values next_v;
    load(block, next_k, k, tiles.begin);
    load(block, next_v, v, tiles.begin);
    for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
      workgroup_barrier();  // all waves are done with V and with the parts
      next_k.store(block.k_tile, convert, block.thread);
      next_v.store(block.v_tile, convert, block.thread);
      workgroup_barrier();
      load(block, next_k, k, first + B::kKeys);
      load(block, next_v, v, first + B::kKeys);
      Scores s;
#pragma unroll
      for (int step = 0; step < B::kScoreSteps; ++step) s[step] = anything<typename B::Unit::C>();
      if (tiles.seen(first)) {
        softmax.begin(s);
        add_scores(block, s, query, prefetch_keys(block, slice_at), slice_at);
      }
      workgroup_barrier();  // all waves are done with K
      if (tiles.seen(here_uniform(first))) parts.write(s);
      workgroup_barrier();
      if (tiles.seen(here_uniform(first))) {
        parts.add(s);
        softmax.template update<B::kOutSteps>(s, o, block.reader(), tiles.hidden(first), [&] {
          if (first < tiles.unmasked_begin) mask_begin(block, mask_of(block), s, first, wave_row);
          if (first + B::kKeys > tiles.unmasked_end) mask_end(block, mask_of(block), s, first, wave_row);
        });
        const typename B::P p(place, s);
        add_values(block, o, p);
      }
    }
  }
  store_rows(block, wave_row, o, softmax);
}

template <class B>
FA_DEVICE void run_wide(const FwdParams& params, LdsBytes lds) {
  __builtin_assume(params.block_table == nullptr);
  const WorkgroupPlace place = place_of<B>(params);
  const Sequence sequence = uniform_sequence(params, place.batch);
  const B block(params, sequence, place, lds);
  const int block_row = block.first_row();
  if (block_row < block.rows()) attend_in_slices(block, block_row);
}

// Defines the kernel. The host selects it for calls without features.
#define FA_FORWARD_WIDE(name, dtype, head_dim)                                      \
  FA_KERNEL(forward, fwd_wide, dtype, head_dim)                                     \
  name(const fa::FwdParams params) {                                                \
    using B = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, fa::Op::fwd_wide>; \
    __attribute__((shared, aligned(16))) static char lds[B::kLdsBytes];             \
    fa::run_wide<B>(params, (fa::LdsBytes)lds);                                     \
  }

}  // namespace fa
