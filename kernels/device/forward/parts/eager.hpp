// The plain loop of direct.hpp with K and V through registers into LDS (Schedule::eager).
#pragma once

#include "device/forward/parts/in_turn.hpp"

namespace fa {

// One barrier a tile: while one tile is computed, the next is stored into the other place, and the one after
// it is loaded.
template <class B, class Mask>
FA_DEVICE void eager(const B& block, const typename B::Tiles& tiles, const Source& k, const Source& v,
                     const typename B::Q& query, typename B::Out& o, typename B::Softmax& softmax,
                     typename B::Convert& convert, const Mask& mask) {
  using Unit = typename B::Unit;
  using Scores = typename B::Scores;
  constexpr int kSteps = B::kScoreSteps;
  static_assert(B::kPadded && B::kConfig.prefetch != 0, "tiles.toml: eager needs padded_tiles and prefetch");
  const PaddedOperands<B, typename B::Keys::Tile> keys(block.k_tile, block.lane);
  const PaddedOperands<B, typename B::Values::Tile> values(block.v_tile, block.lane);
  // Waves that move K do not move V, if each are half of them.
  const int of_values = B::Values::kPieces * 2 <= B::kTile.threads ? block.thread ^ B::kTile.threads / 2 : block.thread;
  typename B::Keys next_k;
  typename B::Values next_v;
  const auto load_both = [&](int first) {
    next_k.load(typename B::template TileView<typename B::Keys>(k.rows, first), block.thread);
    next_v.load(typename B::template TileView<typename B::Values>(v.rows, first), of_values);
  };
  const auto store_both = [&](int at) {
    next_k.store(block.k_tile + at, convert, block.thread);
    next_v.store(block.v_tile + at, convert, of_values);
  };
  load_both(tiles.begin);
  int at = 0;
  store_both(at);
  load_both(tiles.begin + B::kKeys);
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    workgroup_barrier();  // the tile is there, and all waves are done with the previous one
    const int own = at;
    at = B::kTilesLds - at;
    store_both(at);
    load_both(first + 2 * B::kKeys);
    if (!tiles.seen(first)) continue;
    const auto read_key = [&](int n) { return keys.read(own, n / kSteps, n % kSteps); };
    const auto read_value = [&](int n) { return values.read(own, n / B::kOutSteps, n % B::kOutSteps); };
    for (bool again = true; again;) {
      Scores s;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) s[step] = {};
      const typename B::Operands first_keys(read_key);
      prioritise<B, 2>();
      first_keys.template run<B::Q::kSteps * kSteps>(read_key, [&](int n, const typename Unit::A& a) {
        Unit::multiply(s[n % kSteps], a, query.operand(n / kSteps));
      });
      prioritise<B, 0>();
      const typename B::Operands first_values(read_value);  // before the exponentials
      __builtin_amdgcn_sched_barrier(0);
      typename Unit::B weights[B::P::kSteps];
      if (!softmax.template find_weights<B::kOutSteps>(s, o, weights, block.lane, tiles.hidden(first),
                                                       [&] { mask(s, first); })) {
        continue;
      }
      prioritise<B, 1>();
      first_values.template run<B::P::kSteps * B::kOutSteps>(read_value, [&](int n, const typename Unit::A& a) {
        Unit::multiply(o[n % B::kOutSteps], a, weights[n / B::kOutSteps]);
      });
      prioritise<B, 2>();
      again = false;
    }
  }
}

}  // namespace fa
