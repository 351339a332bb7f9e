// As own_keys, with elements of 16 bits.
#pragma once

#include "device/forward/parts/block.hpp"
#include "device/forward/parts/source.hpp"

namespace fa {

// `weights(s, first)` makes probabilities of the scores of the tile with first key `first`. The next K and V
// are loaded as soon as their registers are free.
template <class B, class From, class Weights>
FA_DEVICE void own_elements(const B& block, const typename B::Tiles& tiles, const From& k, const From& v,
                            const typename B::Q& query, typename B::Out& o, typename B::Softmax& softmax,
                            typename B::Convert& convert, const Weights& weights) {
  constexpr int kApart = B::kKeys * B::kConfig.waves;
  const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
  typename B::Keys own_k;
  typename B::Values own_v;
  int first = tiles.begin + block.wave * B::kKeys;
  load(block, own_k, k, first);
  load(block, own_v, v, first);
  if constexpr (B::Q::kLdsBytes != 0) workgroup_barrier();
  for (; first < tiles.end; first += kApart) {
    typename B::Scores s;
    softmax.begin(s);
    own_k.multiply(convert, s, query);
    load(block, own_k, k, first + kApart);
    weights(s, first);
    own_v.multiply(convert, o, typename B::P(place, s));
    load(block, own_v, v, first + kApart);
  }
}

}  // namespace fa
