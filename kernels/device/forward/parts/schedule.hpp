// The schedules of FwdConfig::schedule: when K and V move from global memory through registers into LDS while
// tiles are computed.
#pragma once

#include "device/forward/parts/products.hpp"
#include "device/forward/parts/source.hpp"

namespace fa {

// `scores(s, first)` computes the probabilities of the tile with first key `first`. The next K and V are
// loaded meanwhile.
template <class B, class From, class MakeScores>
FA_DEVICE void two_stages(const B& block, const typename B::Tiles& tiles, const From& k, const From& v,
                          typename B::Out& o, typename B::Convert& convert, const MakeScores& scores) {
  const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
  typename B::Keys next_k;
  typename B::Values next_v;
  load(block, next_k, k, tiles.begin);
  load(block, next_v, v, tiles.begin);
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    workgroup_barrier();  // all waves are done with the last tile
    next_k.store(block.k_tile, convert, block.thread);
    next_v.store(block.v_tile, convert, block.thread);
    workgroup_barrier();
    load(block, next_k, k, first + B::kKeys);
    load(block, next_v, v, first + B::kKeys);
    if (tiles.seen(first)) {
      typename B::Scores s;
      scores(s, first);
      const typename B::P p(place, s);
      add_values(block, o, p);
    }
  }
}

// V is loaded during the first product, the next K during the second.
template <class B, class MakeScores>
FA_DEVICE void one_stage(const B& block, const typename B::Tiles& tiles, const Source& k, const Source& v,
                         typename B::Out& o, typename B::Convert& convert, const MakeScores& scores) {
  const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
  {
    typename B::Keys next_k;
    load(block, next_k, k, tiles.begin);
    next_k.store(block.k_tile, convert, block.thread);
  }
  workgroup_barrier();
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    typename B::Values next_v;
    load(block, next_v, v, first);
    typename B::Scores s;
    scores(s, first);
    const typename B::P p(place, s);
    next_v.store(block.v_tile, convert, block.mover());
    workgroup_barrier();
    typename B::Keys next_k;
    load(block, next_k, k, first + B::kKeys);
    add_values(block, o, p);
    next_k.store(block.k_tile, convert, block.mover());
    workgroup_barrier();
  }
}

// One barrier per tile: while one tile is computed, the next is stored into the other place, and the one
// after it is loaded. `before(first)` starts the loads of scores other than K. `products` and `weights` are
// the parts of the other schedules' `scores`.
template <class B, class Before, class Products, class Weights>
FA_DEVICE void two_tiles(const B& block, const typename B::Tiles& tiles, const Source& k, const Source& v,
                         typename B::Out& o, typename B::Convert& convert, const Before& before,
                         const Products& products, const Weights& weights) {
  static_assert(!B::kDrops, "dropout's bits would have to be found before the products");
  static_assert(B::kConfig.prefetch != 0, "tiles.toml: two_tiles needs prefetch");
  const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
  typename B::Keys next_k;
  typename B::Values next_v;
  const auto load_both = [&](int first) {
    load(block, next_k, k, first);
    load(block, next_v, v, first);
  };
  const auto store_both = [&](int at) {
    next_k.store(block.k_tile + at, convert, block.thread);
    next_v.store(block.v_tile + at, convert, block.thread);
  };
  load_both(tiles.begin);
  int at = 0;
  store_both(at);
  load_both(tiles.begin + B::kKeys);
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    workgroup_barrier();  // the tile is there, and all waves are done with the previous one
    before(first);
    const int own = at;
    at = B::kTilesLds - at;
    store_both(at);
    load_both(first + 2 * B::kKeys);
    if (tiles.seen(first)) {
      typename B::Scores s;
      products(s, prefetch_keys(block, own), own);
      const TurnedValues<B> values(block, block.v_tile + own);
      const typename B::Operands first_values(values);  // before the exponentials, which hide their latency
      __builtin_amdgcn_sched_barrier(0);
      weights(s, first);
      const typename B::P p(place, s);
      add_turned_values<B>(values, first_values, o, p);
    }
  }
}

// Likewise with shared registers for K and V: the next K is loaded during the second product and stored
// before the first, the next V during the first and stored before the second.
template <class B, class Before, class Products, class Weights>
FA_DEVICE void two_tiles_in_turn(const B& block, const typename B::Tiles& tiles, const Source& k,
                                 const Source& v, typename B::Out& o, typename B::Convert& convert,
                                 const Before& before, const Products& products, const Weights& weights) {
  static_assert(!B::kDrops, "dropout's bits would have to be found before the products");
  static_assert(B::kConfig.prefetch != 0, "tiles.toml: two_tiles_in_turn needs prefetch");
  static_assert(!B::kUneven, "K and V share registers, and views");
  const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
  typename B::Keys next;  // or values
  {
    typename B::Values first_v;
    load(block, next, k, tiles.begin);
    load(block, first_v, v, tiles.begin);
    next.store(block.k_tile, convert, block.thread);
    load(block, next, k, tiles.begin + B::kKeys);
    first_v.store(block.v_tile, convert, block.thread);
  }
  int at = 0;
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    workgroup_barrier();  // the tile is there, and all waves are done with the previous one
    before(first);
    const int own = at;
    at = B::kTilesLds - at;
    next.store(block.k_tile + at, convert, block.thread);
    load(block, next, v, first + B::kKeys);
    typename B::Scores s;
#pragma unroll
    for (int step = 0; step < B::kScoreSteps; ++step) s[step] = anything<typename B::Unit::C>();
    if (tiles.seen(first)) {
      products(s, prefetch_keys(block, own), own);
      weights(s, first);
    }
    next.store(block.v_tile + at, convert, block.thread);
    load(block, next, k, first + 2 * B::kKeys);
    if (tiles.seen(here_uniform(first))) {
      const TurnedValues<B> values(block, block.v_tile + own);
      const typename B::Operands first_values(values);
      const typename B::P p(place, s);
      add_turned_values<B>(values, first_values, o, p);
    }
  }
}

// V is stored at the start of the first product and K at its end, so waves do not wait at a barrier for their
// own stores. `before`, `products` and `weights` as for two_tiles.
template <class B, class Before, class Products, class Weights>
FA_DEVICE void pipelined(const B& block, const typename B::Tiles& tiles, const Source& k, const Source& v,
                         typename B::Out& o, typename B::Convert& convert, const Before& before,
                         const Products& products, const Weights& weights) {
  static_assert(!B::kDrops, "dropout's bits would have to be found before the products");
  const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
  typename B::Keys next_k;
  typename B::Values next_v;
  load(block, next_k, k, tiles.begin);
  load(block, next_v, v, tiles.begin);
  next_k.store(block.k_tile, convert, block.thread);
  load(block, next_k, k, tiles.begin + B::kKeys);
  const LdsBytes k_place = here(B::Keys::place(block.k_tile, block.thread));
  workgroup_barrier();
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    before(first);
    const typename B::Operands prefetched = prefetch_keys(block, 0);
    next_v.store(block.v_tile, convert, block.thread);
    load(block, next_v, v, first + B::kKeys);
    typename B::Scores s;
#pragma unroll
    for (int step = 0; step < B::kScoreSteps; ++step) s[step] = anything<typename B::Unit::C>();
    if (tiles.seen(first)) products(s, prefetched);
    workgroup_barrier();  // all waves are done with K, and V is there
    next_k.store_from(k_place, convert, block.thread);
    if (tiles.seen(here_uniform(first))) {
      weights(s, first);
      const typename B::P p(place, s);
      add_values(block, o, p);
    }
    if constexpr (!B::kLoadsAfterBarrier) load(block, next_k, k, first + 2 * B::kKeys);
    workgroup_barrier();  // all waves are done with V, and K is there
    if constexpr (B::kLoadsAfterBarrier) load(block, next_k, k, first + 2 * B::kKeys);
  }
}

}  // namespace fa
