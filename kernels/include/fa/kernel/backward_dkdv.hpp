// The gradients of K and V: one workgroup computes those of a block of keys of one head of k, from one tile
// of queries after another, of all heads of q that share it.
//
// Waves work in pairs that have the same columns (lanes are keys).  One has K and sums dV, the other has V
// and sums dK; only what lies between their two products differs:
//
//   weights     S  = Q  * K^T    P  = exp(S - lse)      to the other wave; dV^T += dO^T * P
//   gradients   dP = dO * V^T    dS = P * (dP - delta)                     dK^T += Q^T  * dS
//
// In the plain loop both products begin with what is subtracted from them, so that no instruction subtracts
// it.
#pragma once

#include "fa/arch/current.hpp"
#include "fa/kernel/backward_dkdv_block.hpp"

namespace fa {

// Which probabilities of a tile dropout keeps: see ColumnDropout.  To be found before the scores, while the
// registers that the generator needs are free.
template <class B>
FA_DEVICE uint32_t kept_bits(const B& block, int head_q, int first, int wave_key) {
  if (!B::kFeatured || !block.is(Role::weights)) return 0;
  const Scoring scoring(loaded_here(block.arguments), block.batch, head_q);
  if (!scoring.drops()) return 0;
  const unsigned group = static_cast<unsigned>(wave_key + B::Unit::column(block.lane, 0)) / 4;
  return B::Drop::bits(first, block.lane, scoring.below,
                       [&](int row) { return dropout_words(scoring.key, block.batch, head_q, row, group); });
}

// P, for the sums of dV; the other wave gets P times softcap's derivative, negative where dropped.
template <class B>
FA_DEVICE typename B::P weights(const B& block, typename B::Result& s, int head_q, int first, int wave_key,
                                bool masked, uint32_t bits) {
  using Unit = typename B::Unit;
  using P = typename B::P;
  if constexpr (!B::kFeatured) {
    B::each(s, [&](float x, int, int) { return __builtin_amdgcn_exp2f(x * block.factor); });
    if (masked) block.mask(s, first, wave_key);
    const P packed = P::of([&](int c, int f) { return element<Unit>(s, c, f); });
    B::Exchange::write(block.exchange(), block.lane, packed);
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
    if (masked) block.mask(s, first, wave_key);  // the other wave masks dS
    if (scoring.drops()) {
      B::in_order(s, [&](float p, int c, int f) { return B::Drop::zero_dropped(p, bits, c, f); });
      B::in_order(slope, [&](float p, int c, int f) { return B::Drop::negate_dropped(p, bits, c, f); });
    }
    B::Exchange::write(block.exchange(), block.lane,
                       P::of([&](int c, int f) { return element<Unit>(slope, c, f); }));
    return P::of([&](int c, int f) { return element<Unit>(s, c, f); });
  }
}

// dS, of dP and what the other wave gave.
template <class B>
FA_DEVICE typename B::P gradients(const B& block, typename B::Result& dp, int head_q, int first, int wave_key,
                                  bool masked) {
  using Unit = typename B::Unit;
  using P = typename B::P;
  const P p = B::Exchange::read(block.exchange(), block.lane);
  if constexpr (!B::kFeatured) {
    B::each(dp, [&](float x, int c, int f) { return p.element(c, f) * x; });
  } else {
    const Scoring scoring(loaded_here(block.arguments), block.batch, head_q);
    B::each(dp, [&](float x, int c, int f) {
      const float weight = p.element(c, f);
      const bool dropped = __builtin_bit_cast(int, weight) < 0;
      return __builtin_fabsf(weight) * ((dropped ? 0 : x * scoring.kept) - block.number(f));
    });
  }
  if (masked) block.mask(dp, first, wave_key);
  return P::of([&](int c, int f) { return element<Unit>(dp, c, f); });
}

// Adds what one head of q gives to the sums of a wave's keys.
template <class B>
FA_DEVICE void add_head(const B& block, int head_q, int wave_key, const typename B::Tiles& tiles,
                        const typename B::Own& own, typename B::Sums& sums) {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  constexpr int kAtOnce = B::kConfig.steps_at_once;
  constexpr bool kOverlaid = B::kConfig.overlaid;
  const bool of_weights = block.is(Role::weights);
  Stage stage;
  const typename B::Source source = block.source(head_q);
  const auto load = [&](int first) {
    // Where registers are short, it is found again for each tile.
    const typename B::Source from = B::kFeatured ? block.source(head_q) : source;
    stage.load([&](int tensor) { return typename B::View(tensor == 0 ? from.q : from.dout, first); },
               block.mover());
    return block.load_number(from, first);
  };
  float number = load(tiles.begin);
  for (int first = tiles.begin; first < tiles.end; first += B::kQueries) {
    const bool seen = tiles.seen(first), masked = tiles.masked(first);
    workgroup_barrier();  // all waves are done with the last tile
    stage.store_rows(block.lds, block.mover());
    if (!kOverlaid) stage.store_turned(block.lds, block.mover());
    block.store_number(number);
    workgroup_barrier();
    if (!kOverlaid) number = load(first + B::kQueries);
    typename B::Result result;
    typename B::P packed;
    if (seen) {
      const uint32_t bits = kept_bits(block, head_q, first, wave_key);
      block.begin(result);
      multiply_rows<Unit, typename Stage::RowTile, B::kSteps, kAtOnce>(
          result, Stage::rows_of(block.lds, of_weights ? 0 : 1), own, block.reader());
      if (of_weights) packed = weights(block, result, head_q, first, wave_key, masked, bits);
    }
    workgroup_barrier();  // P is there
    if (kOverlaid) {
      stage.store_turned(block.lds, block.mover());
      workgroup_barrier();
      number = load(first + B::kQueries);
    }
    if (seen) {
      if (!of_weights) packed = gradients(block, result, head_q, first, wave_key, masked);
      const typename B::Operand operand(block.operand_area(), block.lane, packed);
      multiply_turned<Unit, typename Stage::TurnedTile, B::kSumSteps, kAtOnce>(
          sums, Stage::turned_of(block.lds, of_weights ? 1 : 0), operand, block.reader());
    }
  }
}

// Writes a wave's rows of dv or dk.
template <class B>
FA_DEVICE void store(const B& block, int wave_key, typename B::Sums& sums) {
#pragma unroll
  for (int step = 0; step < B::kSumSteps; ++step) B::Unit::settle(sums[step]);
  const BwdParams& params = loaded_here(block.arguments);
  const bool of_v = block.is(Role::weights), dropping = B::kFeatured && params.dropout_below != 0;
  const BwdGradient gradient = of_v ? params.dv : params.dk;
  const float factor = of_v ? (dropping ? params.dropout_scale : 1) : params.scale;
  const Sequence& sequence = block.sequence;
  const int64_t at =
      offset_of(gradient, params.cu_seqlens_k != nullptr, block.batch, block.head_k, sequence.k_first);
  store_gradient<typename B::Unit, B::kDType, B::kHeadDim>(
      sums, gradient, at, wave_key, sequence.seqlen_k, factor, block.lane,
      [&](int key) { return block.visible.first_row(key) < block.visible.last_row(key); });
}

template <class B>
FA_DEVICE void run_dkdv(BwdArguments arguments, LdsBytes lds) {
  const BwdParams& params = loaded_here(arguments);
  const Sequence found = sequence(params, __builtin_amdgcn_workgroup_id_z());
  const int first_key = __builtin_amdgcn_workgroup_id_x() * B::kTile.block_n;
  if (first_key >= found.seqlen_k) return;
  const B block(arguments, params, found, lds);
  const int wave_key = first_key + block.pair * B::Unit::kN;
  const typename B::Tiles tiles = block.tiles_of(first_key, wave_key);
  typename B::Sums sums = {};
#pragma unroll
  for (int step = 0; step < B::kSumSteps; ++step) B::Unit::settle(sums[step]);
  if (tiles.begin < tiles.end) {
    const typename B::Own own = block.load_own(wave_key);
    const int group = uniform(params.nheads / params.nheads_k);
    for (int i = 0; i < group; ++i) {
      add_head(block, block.head_k * group + i, wave_key, tiles, own, sums);
    }
  }
  store(block, wave_key, sums);
}

// Defines the kernel `name`.
#define FA_DKDV(name, dtype, head_dim)                                                                       \
  extern "C" __attribute__((global))                                                                         \
  __attribute__((amdgpu_flat_work_group_size(fa::dkdv_tile(fa::kCurrentGfx, dtype, head_dim).threads,        \
                                             fa::dkdv_tile(fa::kCurrentGfx, dtype, head_dim).threads)))      \
  __attribute__((                                                                                            \
      amdgpu_waves_per_eu(fa::dkdv_config(fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void           \
  name(const fa::BwdParams) {                                                                                \
    const fa::BwdArguments arguments = fa::backward_arguments();                                             \
    using Plain = fa::DkDvBlock<fa::kCurrentGfx, dtype, head_dim, false>;                                    \
    using Featured = fa::DkDvBlock<fa::kCurrentGfx, dtype, head_dim, true>;                                  \
    __attribute__((shared, aligned(16))) static char lds[fa::larger(Plain::kLdsBytes, Featured::kLdsBytes)]; \
    if (fa::featured(fa::loaded_here(arguments))) {                                                          \
      fa::run_dkdv<Featured>(arguments, (fa::LdsBytes)lds);                                                  \
      asm volatile("; keeps the ends of the two apart, which must not share registers");                     \
    } else {                                                                                                 \
      fa::run_dkdv<Plain>(arguments, (fa::LdsBytes)lds);                                                     \
    }                                                                                                        \
  }

}  // namespace fa
