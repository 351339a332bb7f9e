// The plain loop of direct.hpp for products of fp8, with K and V through registers into LDS
// (Schedule::eager).
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
  using Keys = typename B::Keys;
  using Values = typename B::Values;
  constexpr int kSteps = B::kScoreSteps;
  static_assert(B::kPadded && B::kConfig.prefetch != 0, "tiles.toml: eager needs padded_tiles and prefetch");
  const PaddedOperands<B, typename Keys::Tile> keys(block.k_tile, block.lane);
  const PaddedOperands<B, typename Values::Tile> values(block.v_tile, block.lane);
  // Half of the waves move K, the others V.
  static_assert(sizeof(Keys) == sizeof(u32x4) && sizeof(Values) == sizeof(u32x4), "they share registers");
  const bool of_keys = uniform(block.wave) < B::kConfig.waves / 2;
  const int mover = block.thread % B::kMovers;
  u32x4 next;
  const HeadRows rows = of_keys ? k.rows : v.rows;
  const auto load_next = [&](int first) {
    const typename B::template TileView<Keys> view(rows, first);
    static_assert(kSame<decltype(view), const typename B::template TileView<Values>>, "rows are as long");
    if (of_keys) {
      Keys stage;
      stage.load(view, mover);
      next = stage.unit[0];
    } else {
      Values stage;
      stage.load(view, mover);
      next = stage.key[0];
    }
  };
  // And loads the one after it.
  const auto store_next = [&](int at, int following) {
    const u32x4 words = here(convert(next));
    Unchanged as_they_are;
    if (of_keys) {
      Keys{{words}}.store(block.k_tile + at, as_they_are, mover);
    } else {
      Values{{words}}.store(block.v_tile + at, as_they_are, mover);
    }
    load_next(following);
  };
  load_next(tiles.begin);
  int at = 0;
  store_next(at, tiles.begin + B::kKeys);
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    workgroup_barrier();  // the tile is there, and all waves are done with the previous one
    const int own = at;
    at = B::kTilesLds - at;
    store_next(at, first + 2 * B::kKeys);
    if (!tiles.seen(first)) continue;
    const auto read_key = [&](int n) { return keys.read(own, n / kSteps, n % kSteps); };
    const auto read_value = [&](int n) { return values.read(own, n / B::kOutSteps, n % B::kOutSteps); };
    for (bool again = true; again;) {
      typename B::Scores s;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) s[step] = {};
      const typename B::Operands first_keys(read_key);
      prioritise<B, 3>();
      first_keys.template run<B::Q::kSteps * kSteps>(read_key, [&](int n, const typename Unit::A& a) {
        Unit::multiply(s[n % kSteps], a, query.operand(n / kSteps));
      });
      prioritise<B, 1>();
      const typename B::Operands first_values(read_value);  // before the exponentials
      __builtin_amdgcn_sched_barrier(0);
      typename Unit::B weights[B::P::kSteps];
      const int hidden = tiles.hidden(here_uniform(first));
      const auto hide = [&] { mask(s, first); };
      if (!softmax.template find_weights<B::kOutSteps>(s, o, weights, block.lane, hidden, hide)) continue;
      prioritise<B, 2>();  // also of the code between tiles
      first_values.template run<B::P::kSteps * B::kOutSteps>(
          read_value, [&](int n, const typename Unit::A& a) {
            Unit::multiply(o[n % B::kOutSteps], a, weights[n / B::kOutSteps]);
          });
      again = false;
    }
  }
}

}  // namespace fa
