// As own_keys, with products on the VALU, of codes or of elements of 16 bits.
#pragma once

#include "device/forward/coded_scores.hpp"
#include "device/forward/parts/block.hpp"
#include "device/forward/parts/source.hpp"

namespace fa {

// `weights(s, first)` makes probabilities of the scores of the tile with first key `first`. The next K and V
// are loaded as soon as their registers are free.
template <class B, class From, class Weights>
FA_DEVICE void own_vector(const B& block, const typename B::Tiles& tiles, const From& k, const From& v,
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
    if constexpr (B::kCoded) convert.lift(own_k.codes);
    own_k.multiply(convert, s, query);
    if constexpr (B::kCoded) {
      if (convert.per_key(false)) convert.of_keys = own_k.descales.now();
      own_k.descales.forget();
    }
    load(block, own_k, k, first + kApart);
    if constexpr (B::kCoded) {
      if (convert.per_key(true)) convert.of_values = own_v.descales.now();
    }
    weights(s, first);
    const typename B::P p(place, s);
    if constexpr (B::kCoded) convert.lift(own_v.key);
    own_v.multiply(convert, o, p);
    if constexpr (B::kCoded) own_v.descales.forget();
    load(block, own_v, v, first + kApart);
  }
}

}  // namespace fa
