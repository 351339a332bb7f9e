// The gradients of K and V: a workgroup computes a block of keys of one head of k. It visits the tiles of
// queries of all heads of q that share this head.
//
// Waves work in pairs with the same columns (lanes are keys). One has K and sums dV, the other has V and sums
// dK. They differ only between their two products:
//
//   weights     S  = Q  * K^T    P  = exp(S - lse)      to the other wave; dV^T += dO^T * P
//   gradients   dP = dO * V^T    dS = P * (dP - delta)                     dK^T += Q^T  * dS
//
// In the plain loop both products start from minus lse and delta, which saves the subtractions.
#pragma once

#include "device/arch/current.hpp"
#include "device/backward/dkdv/key_mask.hpp"
#include "device/backward/dkdv/result.hpp"

namespace fa {

// The probabilities of a tile kept by dropout: see ColumnDropout. Call before computing the scores, while the
// generator's registers are free.
template <class B>
FA_DEVICE uint32_t kept_bits(const B& block, int head_q, int first, int wave_key) {
  if (!B::kFeatured || !block.is(Role::weights)) return 0;
  const Scoring scoring(loaded_here(block.arguments), block.batch, head_q);
  if (!scoring.drops()) return 0;
  const unsigned group = static_cast<unsigned>(wave_key + B::Unit::column(block.lane, 0)) / 4;
  return B::Drop::bits(first, block.lane, scoring.below,
                       [&](int row) { return dropout_words(scoring.key, block.batch, head_q, row, group); });
}

// The rest of `weights` of the featured loop, element by element, which takes fewer registers. `s` are scores
// after Scoring::cap.
template <class B>
FA_DEVICE typename B::P weights_by_element(const B& block, const Scoring& scoring, typename B::Result& s,
                                           float distance, int first, int wave_key, bool masked,
                                           uint32_t bits, int columns) {
  using Unit = typename B::Unit;
  using P = typename B::P;
  const bool caps = scoring.caps();
  const uint32_t kept = scoring.drops() ? bits : ~0u;
  const auto slope_of = [&](int c, int f) {
    float& x = element<Unit>(s, c, f);
    const float capped = here(x), away = distance - static_cast<float>(Unit::held_step(f));
    const float slope = caps ? scoring.cap_derivative(capped) : 1;
    const float p = scoring.probability(capped, away, block.number(f));
    x = here(B::Drop::zero_dropped(p, kept, c, f));
    return here(B::Drop::negate_dropped(slope * p, kept, c, f));
  };
  block.give(P::of(slope_of), columns);
  if (masked) mask(block, s, first, wave_key);  // the other wave masks dS
  return P::of([&](int c, int f) { return element<Unit>(s, c, f); });
}

// P, for the sums of dV. The other wave gets P times softcap's derivative, negative where dropped. `columns`:
// the number of the wave's block of columns. `wave_key` is its first.
template <class B>
FA_DEVICE typename B::P weights(const B& block, typename B::Result& s, int head_q, int first, int wave_key,
                                bool masked, uint32_t bits, const KeyMaskOf<B>& given, int columns = 0) {
  using Unit = typename B::Unit;
  using P = typename B::P;
  if constexpr (!B::kFeatured) {
    if constexpr (!KeyMaskOf<B>::kAhead) given.apply(block, s, first, wave_key);
    B::each(s, [&](float x, int, int) { return __builtin_amdgcn_exp2f(x * block.factor); });
    if (masked) mask(block, s, first, wave_key);
    P packed = P::of([&](int c, int f) { return element<Unit>(s, c, f); });
    block.give(packed, columns);
    if (B::kMasked && block.dropout.drops()) {
      drop_weights(block, packed, block.exchange(columns), head_q, first, wave_key);
      if constexpr (B::kGivesOperand) block.give(packed, columns);
    }
    return packed;
  } else {
    const Scoring scoring(loaded_here(block.arguments), block.batch, head_q);
    float distance[B::kColumns];
#pragma unroll
    for (int c = 0; c < B::kColumns; ++c) {
      const int row = first + Unit::held_begin(block.lane, B::kQueries);
      distance[c] = static_cast<float>(wave_key + Unit::column(block.lane, c) - block.visible.diagonal(row));
    }
    scoring.cap([&](const auto& action) { B::in_order(s, action); });
    if constexpr (B::kConfig.by_element) {
      return weights_by_element(block, scoring, s, distance[0], first, wave_key, masked, bits, columns);
    }
    typename B::Result slope;
    if (scoring.caps()) {
      B::each(slope, [&](float, int c, int f) { return scoring.cap_derivative(element<Unit>(s, c, f)); });
    } else {
      B::each(slope, [&](float, int, int) { return 1.0f; });
    }
    B::in_order(s, [&](float x, int c, int f) {
      const float away = distance[c] - static_cast<float>(Unit::held_step(f));
      const float p = scoring.probability(x, away, block.number(f));
      element<Unit>(slope, c, f) *= p;
      return p;
    });
    if (masked) mask(block, s, first, wave_key);  // the other wave masks dS
    if (scoring.drops()) {
      B::in_order(s, [&](float p, int c, int f) { return B::Drop::zero_dropped(p, bits, c, f); });
      B::in_order(slope, [&](float p, int c, int f) { return B::Drop::negate_dropped(p, bits, c, f); });
    }
    block.give(P::of([&](int c, int f) { return element<Unit>(slope, c, f); }), columns);
    return P::of([&](int c, int f) { return element<Unit>(s, c, f); });
  }
}

// dS, from the other wave's P and from dP. `masked`: elements are hidden or, with a mask, dropped.
template <class B>
FA_DEVICE typename B::P gradients_of(const B& block, const typename B::P& p, typename B::Result& dp,
                                     int head_q, int first, int wave_key, bool masked,
                                     const HeadRows& deltas = {}) {
  using Unit = typename B::Unit;
  using P = typename B::P;
  if (B::kMasked && masked) {
    // P is masked already.
    mask(block, dp, first, wave_key);
    if (block.dropout.drops()) drop_products(block, p, dp, deltas, first);
    masked = false;
  }
  if constexpr (!B::kFeatured && !B::kMasked && RaisedOf<B>::kIs) {
    if (masked) mask(block, dp, first, wave_key);
    return p.times_pairs([&](int c, int f) {
      return f32x2{element<Unit>(dp, c, f), element<Unit>(dp, c, f + 1)} * RaisedOf<B>::kOfProducts;
    });
  } else if constexpr (!B::kFeatured && Unit::kColumns == 1 && B::kTraits.packed_fp32 &&
                       B::kDType == DType::bf16) {
    // Two at once, if an element has to be unpacked in any case.
#pragma unroll
    for (int f = 0; f < P::kHeld; f += 2) {
      float &low = element<Unit>(dp, 0, f), &high = element<Unit>(dp, 0, f + 1);
      const f32x2 both = f32x2{p.element(0, f), p.element(0, f + 1)} * f32x2{low, high};
      low = both[0], high = both[1];
    }
  } else if constexpr (!B::kFeatured) {
    B::each(dp, [&](float x, int c, int f) { return B::product(p.times(c, f, x)); });
  } else {
    const Scoring scoring(loaded_here(block.arguments), block.batch, head_q);
    B::each(dp, [&](float x, int c, int f) {
      const float weight = p.element(c, f);
      const bool dropped = __builtin_bit_cast(int, weight) < 0;
      return __builtin_fabsf(weight) * ((dropped ? 0 : x * scoring.kept) - block.number(f));
    });
  }
  if (masked) mask(block, dp, first, wave_key);
  return P::template of<RaisedOf<B>::kIs>(
      [&](int c, int f) { return RaisedOf<B>::times(RaisedOf<B>::kOfProducts, element<Unit>(dp, c, f)); });
}

template <class B>
FA_DEVICE typename B::P gradients(const B& block, typename B::Result& dp, int head_q, int first, int wave_key,
                                  bool masked, int columns = 0, const HeadRows& deltas = {}) {
  const typename B::P p = block.given(columns);
  return gradients_of(block, p, dp, head_q, first, wave_key, masked, deltas);
}

// Adds one head of q's part of the sums of a wave's keys.
template <class B>
FA_DEVICE void add_head(const B& block, int head_q, int wave_key, const typename B::Tiles& tiles,
                        const typename B::Own& own, typename B::Sums& sums) {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  constexpr int kAtOnce = B::kConfig.steps_at_once, kAhead = B::kConfig.prefetch;
  constexpr bool kOverlaid = B::kConfig.overlaid;
  const bool of_weights = block.is(Role::weights);
  const KeyMaskOf<B> given(block, head_q);
  Stage stage;
  const typename B::Source source = block.source(head_q);
  const auto load = [&](int first) {
    // Computed anew for each tile if registers are short.
    const typename B::Source from = B::kFeatured ? block.source(head_q) : source;
    stage.load([&](int tensor) { return typename B::View(tensor == 0 ? from.q : from.dout, first); },
               block.mover());
    return B::Numbers::load(block, from, first, 0);
  };
  float number = load(tiles.begin);
  for (int first = tiles.begin; first < tiles.end; first += B::kQueries) {
    const bool seen = tiles.seen(first);
    const bool masked =
        B::kMasked ? uniform(tiles.masked_flag(first).sign | block.dropout.sign) < 0 : tiles.masked(first);
    workgroup_barrier();  // all waves are done with the last tile
    raise_dout(block, stage);
    stage.store_rows(block.lds, block.mover());
    if (!kOverlaid) stage.store_transposed(block.lds, block.mover());
    B::Numbers::store(block, number, 0);
    workgroup_barrier();
    if (!kOverlaid) number = load(first + B::kQueries);
    typename B::Result result;
    typename B::P packed;
    if (seen) {
      const uint32_t bits = kept_bits(block, head_q, first, wave_key);
      begin(block, result);
      multiply_rows<Unit, typename Stage::RowTile, B::kSteps, kAtOnce, kAhead>(
          result, Stage::rows_of(block.lds, of_weights ? 0 : 1), own, block.reader());
      if (of_weights) packed = weights(block, result, head_q, first, wave_key, masked, bits, given);
    }
    workgroup_barrier();  // P is there
    if (kOverlaid) {
      stage.store_transposed(block.lds, block.mover());
      workgroup_barrier();
      number = load(first + B::kQueries);
    }
    if (seen) {
      if (!of_weights)
        packed = gradients(block, result, head_q, first, wave_key, masked, 0, deltas_of(block, source));
      const typename B::Operand operand = block.operand(packed);
      multiply_transposed<Unit, typename Stage::TransposedTile, B::kSumSteps, kAtOnce, kAhead>(
          sums, Stage::transposed_of(block.lds, of_weights ? 1 : 0), operand, block.reader());
    }
  }
}

// As above, with two barriers per tile and no wait for stores between these: each form of a tile is stored
// during the products of the other.
template <class B>
FA_DEVICE void add_head_early(B& block, int head_q, int wave_key, const typename B::Tiles& tiles,
                              const typename B::Own& own, typename B::Sums& sums) {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  constexpr int kAtOnce = B::kConfig.steps_at_once, kAhead = B::kConfig.prefetch;
  const bool of_weights = block.is(Role::weights);
  const KeyMaskOf<B> given(block, head_q);
  constexpr bool kFixed = Stage::kFixed && !B::kFeatured;
  Stage stage;
  const typename B::Source source = block.source(head_q);
  float number = 0;
  HeadRows rows = source.q;
  typename Stage::Place place;
  if constexpr (kFixed) {
    if (Stage::tensor_of_wave(block.thread) == 1) rows = source.dout;
    place = Stage::place(block.lds, static_cast<uint32_t>(rows.row_bytes), block.thread);
  }
  const auto load = [&](int first) {
    // Computed anew for each tile if registers are short.
    const typename B::Source from = B::kFeatured ? block.source(head_q) : source;
    if constexpr (kFixed) {
      stage.load_at(place, typename B::View(rows, first), block.thread);
    } else {
      stage.load([&](int tensor) { return typename B::View(tensor == 0 ? from.q : from.dout, first); },
                 block.mover());
    }
    number = B::Numbers::load(block, from, first, number);
  };
  const auto store_rows = [&](int set) {
    raise_dout(block, stage);
    if constexpr (kFixed) {
      stage.store_rows_at(place, block.thread);
    } else {
      stage.store_rows(block.lds, block.mover());
    }
    B::Numbers::store(block, number, set);
  };
  const auto store_transposed = [&] {
    if constexpr (kFixed) {
      stage.store_transposed_at(place, block.thread);
    } else {
      stage.store_transposed(block.lds, block.mover());
    }
  };
  load(tiles.begin);
  // For the last head's rows, stored at its loop's end.
  if constexpr (B::kTraits.lds_counter) missed_lds_wait<B::kArch>();
  workgroup_barrier();  // LDS is free
  store_rows(block.set);
  for (int first = tiles.begin; first < tiles.end; first += B::kQueries) {
    const Flag seen = tiles.seen_flag(first), masked{tiles.masked_flag(first).sign | block.dropout.sign};
    workgroup_barrier();  // rows are there, and all waves are done with the last tile's transposes
    store_transposed();
    typename B::Result result;
    typename B::P packed;
    if (seen) {
      const uint32_t bits = kept_bits(block, head_q, first, wave_key);
      begin(block, result);
      multiply_rows<Unit, typename Stage::RowTile, B::kSteps, kAtOnce, kAhead>(
          result, Stage::rows_of(block.lds, of_weights ? 0 : 1), own, block.reader());
      if (of_weights) packed = weights(block, result, head_q, first, wave_key, masked, bits, given);
    }
    load(first + B::kQueries);
    workgroup_barrier();  // P and transposes are there, and all waves are done with rows
    if (seen) {
      if (!of_weights)
        packed = gradients(block, result, head_q, first, wave_key, masked, 0, deltas_of(block, source));
      const typename B::Operand operand = block.operand(packed);
      multiply_transposed<Unit, typename Stage::TransposedTile, B::kSumSteps, kAtOnce, kAhead>(
          sums, Stage::transposed_of(block.lds, of_weights ? 1 : 0), operand, block.reader());
    }
    block.set ^= 1;
    store_rows(block.set);
  }
}

}  // namespace fa
