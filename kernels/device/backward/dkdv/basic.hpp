// The kernel of dk and dv with the loops of dkdv/loop.hpp: of rows of tiles.toml with early_rows, or without.
#pragma once

#include "device/backward/dkdv/dq_part.hpp"
#include "device/backward/dkdv/loop.hpp"

namespace fa {

template <class Shape>
struct BasicLoop : Shape {
  using Stage = TransposedStage<typename Shape::Unit, Shape::kQueries, Shape::kHeadDim, Shape::kMovers,
                                Shape::kConfig.padded_tiles, 2, Shape::kConfig.overlaid>;
  using Numbers = Choice<!Shape::kConfig.early_rows, ThreadNumbers<Shape, 1>,
                         Choice<Shape::kFeatured, ThreadNumbers<Shape, 2>, LaneNumbers<Shape>>>;

  template <class B>
  FA_DEVICE static void run(BwdArguments arguments, LdsBytes lds) {
    const BwdParams& params = loaded_here(arguments);
    const WorkgroupPlace place = B::place_of(params);
    const Sequence found = sequence_of<B>(params, place.batch);
    const int first_key = place.block * B::kTile.block_n;
    if (first_key >= found.seqlen_k) return;
    B block(arguments, params, place, found, lds);
    const int wave_key = first_key + block.pair * B::Unit::kN;
    const typename B::Tiles tiles = block.tiles_of(first_key, wave_key);
    typename B::Sums sums = {};
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) B::Unit::settle(sums[step]);
    if (tiles.begin < tiles.end) {
      DqOf<B> dq(block);
      dq.load(block, first_key);
      const typename B::Own own = block.load_own(wave_key);
      const int group = uniform(params.nheads / params.nheads_k);
      for (int i = 0; i < group; ++i) {
        const int head_q = block.head_k * group + i;
        if constexpr (B::kWithDq) {
          add_head_fused(block, head_q, wave_key, tiles, own, dq, sums);  // of fused.hpp
        } else if constexpr (B::kConfig.early_rows) {
          add_head_early(block, head_q, wave_key, tiles, own, sums);
        } else {
          add_head(block, head_q, wave_key, tiles, own, sums);
        }
      }
    }
    store(block, wave_key, sums);
  }
};

}  // namespace fa
