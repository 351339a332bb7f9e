// Processing of products in the dq kernel: dS, with softcap, ALiBi and dropout in the loop with all features.
// Where the kernel with a bias stores dS, the bias's gradient.
#pragma once

#include "device/backward/parts/block.hpp"
#include "device/backward/parts/late_dropout.hpp"
#include "device/backward/parts/raised.hpp"
#include "device/backward/parts/scoring.hpp"
#include "device/masks/dense_mask.hpp"
#include "device/scores/dropout.hpp"

namespace fa {

// Whether dS becomes P * (dP - delta) only in the rounding instruction. At head dim 32 that would cost a wave
// of a SIMD.
template <class B>
inline constexpr bool kProductLast =
    RaisedOf<B>::kIs && !B::kFeatured && !B::kMasked && B::kConfig.interleaved && B::kHeadDim > 32;

// Of the result of DqBlock::find.
template <class B>
FA_DEVICE typename B::P packed_gradients(typename B::Result& dp, [[maybe_unused]] typename B::Result& s) {
  using Unit = typename B::Unit;
  using P = typename B::P;
  static_assert(!kProductLast<B> || !B::kLateNumbers, "tiles.toml: with late numbers P is multiplied before");
  if constexpr (!RaisedOf<B>::kIs) return P::of([&](int c, int f) { return element<Unit>(dp, c, f); });
  const float one = __builtin_bit_cast(float, here_uniform(0x3f800000));
  return P::template of<true>([&](int c, int f) {
    return (kProductLast<B> ? element<Unit>(s, c, f) : one) * element<Unit>(dp, c, f);
  });
}

// dS in the place of dP.
template <class B>
FA_DEVICE void gradients_of_scores(const B& block, typename B::Result& s, typename B::Result& dp,
                                   int wave_row, int first, const typename B::Numbers& numbers,
                                   uint32_t bits) {
  using Unit = typename B::Unit;
  using Drop = typename B::Drop;
  using Raise = RaisedOf<B>;
  // On the path without ALiBi, the compiler leaves one wait state too few between the last matrix instruction
  // and the first use of its result (LLVM 22; the static checks find it). It does not count these.
  if constexpr (!B::kTraits.matrix_interlock) asm volatile("s_nop 1");
  const Scoring scoring(loaded_here(block.arguments), block.batch, block.head);
  float distance[B::kColumns];
#pragma unroll
  for (int c = 0; c < B::kColumns; ++c) {
    distance[c] = static_cast<float>(first + Unit::held_begin(block.lane, B::kKeys) -
                                     block.visible.diagonal(wave_row + Unit::column(block.lane, c)));
  }
  if (scoring.drops()) {
    B::in_order(dp, [&](float x, int c, int f) {
      const int all = static_cast<int>(bits << (32 - Drop::kBits + c * Drop::kHeld + f)) >> 31;
      return __builtin_bit_cast(float, __builtin_bit_cast(int, x* scoring.kept) & all);
    });
  }
  scoring.cap([&](const auto& action) { B::in_order(s, action); });
  if (scoring.caps()) {
    B::in_order(dp, [&](float x, int c, int f) {
      return (x - Raise::raise(numbers.delta[c])) * scoring.cap_derivative(element<Unit>(s, c, f));
    });
  } else {
    B::in_order(dp, [&](float x, int c, int) { return x - Raise::raise(numbers.delta[c]); });
  }
  B::in_order(dp, [&](float x, int c, int f) {
    const float away = distance[c] + static_cast<float>(Unit::held_step(f));
    return x * scoring.probability(element<Unit>(s, c, f), away, numbers.lse[c]);
  });
}

// dS in the place of dP, for both loops.
template <class B>
FA_DEVICE void gradients_in_place(const B& block, typename B::Result& s, typename B::Result& dp, int wave_row,
                                  int first, const typename B::Numbers& numbers,
                                  [[maybe_unused]] uint32_t bits) {
  using Unit = typename B::Unit;
  if constexpr (kProductLast<B>) {
    // It comes last.
  } else if constexpr (B::kFeatured) {
    gradients_of_scores(block, s, dp, wave_row, first, numbers, bits);
  } else if constexpr (!B::kConfig.interleaved) {
    B::each(dp, [&](float x, int c, int f) {
      return __builtin_amdgcn_exp2f(element<Unit>(s, c, f) * block.factor) * x;
    });
  } else if constexpr (B::kLateNumbers) {
#pragma unroll
    for (int f = 0; f < B::P::kHeld; f += 2) {
      const f32x2 dp_less = f32x2{dp[0][f], dp[0][f + 1]} + numbers.delta[0];
      const f32x2 both = f32x2{s[0][f], s[0][f + 1]} * dp_less;
      dp[0][f] = both[0], dp[0][f + 1] = both[1];
    }
  } else {
    B::each(dp, [&](float x, int c, int f) { return element<Unit>(s, c, f) * x; });
  }
}

// The probabilities of a tile kept by dropout.
template <class B>
FA_DEVICE uint32_t kept_of(const B& block, int wave_row, int first) {
  const Scoring scoring(loaded_here(block.arguments), block.batch, block.head);
  if (!scoring.drops()) return 0;
  const typename B::Drop dropout{scoring.below, scoring.key};
  return dropout.kept(first, block.lane, [&](int c, unsigned group) {
    return dropout_words(scoring.key, block.batch, block.head, wave_row + B::Unit::column(block.lane, c),
                         group);
  });
}

// Whether there is `dscores`. Wave-uniform, as a number in a scalar register.
template <class B>
FA_DEVICE int has_dscores(BwdArguments arguments) {
  if constexpr (!B::kMasked) return 0;
  const MaskedBwdParams& p = reinterpret_cast<const MaskedBwdParams&>(loaded_here(arguments));
  const uint64_t bits = reinterpret_cast<uint64_t>(p.dscores);
  return here_uniform(static_cast<int>(bits | bits >> 32));
}

// Writes dS of a tile of keys to `dscores`. Skipped tiles are not written.
template <class B>
FA_DEVICE void store_dscores(const B& block, typename B::Result& ds, int wave_row, int first) {
  using Unit = typename B::Unit;
  constexpr int kHeld = B::P::kHeld, kRun = kHeld < 8 ? kHeld : 8;  // consecutive keys of a lane
  constexpr int kAtOnce = kRun < 4 ? kRun : 4;
  using View = BufferView<Unit::kN, 0, B::kTraits.buffer_word3>;
  const MaskedBwdParams& p = reinterpret_cast<const MaskedBwdParams&>(loaded_here(block.arguments));
  const int keys = mask_keys(p.bwd.seqlen_k), row_bytes = keys * 4;
  const int64_t heads = static_cast<int64_t>(block.batch) * p.bwd.nheads + block.head;
  const char* const base = reinterpret_cast<const char*>(p.dscores) + heads * p.bwd.seqlen_q * row_bytes;
  const View view({base, row_bytes, p.bwd.seqlen_q}, wave_row, row_bytes);
  const int lane = here(block.lane);
  const int begin = here_uniform(first) + Unit::held_begin(lane, B::kKeys);
  // dS comes from a P enlarged before truncation.
  const float of_score = p.bwd.dropout_scale * RaisedOf<B>::kOfDscores;
#pragma unroll
  for (int c = 0; c < B::kColumns; ++c) {
    const int row = Unit::column(lane, c) * row_bytes;
#pragma unroll
    for (int f = 0; f < kHeld; f += kAtOnce) {
      const int key = begin + Unit::held_step(f);
      const int at = key < keys ? row + key * 4 : -16;  // beyond the last row
      float values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) values[i] = element<Unit>(ds, c, f + i) * of_score;
      if constexpr (kAtOnce == 4) {
        view.write_at(at, f32x4{values[0], values[1], values[2], values[3]});
      } else {
        view.write_at(at, f32x2{values[0], values[1]});
      }
    }
  }
}

// Hides keys that a query does not see.
template <class B>
FA_DEVICE void hide_unseen(const B& block, typename B::Result& ds, int wave_row, int first) {
  using Unit = typename B::Unit;
  int begin[B::kColumns], end[B::kColumns];
#pragma unroll
  for (int c = 0; c < B::kColumns; ++c) {
    const int row = wave_row + here(Unit::column(block.lane, c)),
              from = first + Unit::held_begin(block.lane, B::kKeys);
    begin[c] = block.visible.begin(row) - from;
    end[c] = block.visible.end(row) - from;
  }
  B::in_order(ds, [&](float value, int c, int f) {
    const int key = Unit::held_step(f);
    return key >= begin[c] && key < end[c] ? value : 0;
  });
}

// dS in the place of dP, with the values of hidden and dropped elements. Stored if `dscores` is given.
template <class Mask, class B>
FA_DEVICE void finish(const B& block, typename B::Result& dp, typename B::Result& s, int wave_row, int first,
                      const typename B::Tiles& tiles, const typename B::Numbers& numbers,
                      const typename B::Starts& starts, uint32_t bits) {
  // Dropout with a mask: if registers hold P, as part of an existing branch.
  constexpr bool kDropsLast =
      B::kMasked && B::kConfig.interleaved && !B::kDirect && B::kConfig.waves_per_simd <= 2;
  if constexpr (B::kMasked && !kDropsLast) {
    if (block.dropout.drops()) {
      if constexpr (B::kLateNumbers) {
        const float none[B::kColumns] = {};
        drop_products(block, dp, wave_row, first, none);
      } else {
        drop_products(block, dp, wave_row, first,
                      B::kKeepsStarts ? reinterpret_cast<const float*>(&starts.dp) : numbers.delta);
      }
    }
  }
  gradients_in_place(block, s, dp, wave_row, first, numbers, bits);
  if constexpr (!kDropsLast) {
    if (tiles.masked(first)) {
      if constexpr (kProductLast<B>) {
        B::each(dp, [&](float x, int c, int f) { return element<typename B::Unit>(s, c, f) * x; });
        B::each(s, [](float, int, int) { return 1.0f; });
      }
      hide_unseen(block, dp, wave_row, first);
    }
  } else if (uniform(tiles.masked_flag(first).sign | block.dropout.sign) < 0) {
    if (block.dropout.drops()) drop_gradients(block, dp, s, wave_row, first, numbers.delta);
    if (tiles.masked(first)) hide_unseen(block, dp, wave_row, first);
  }
  // A boolean mask has no gradient.
  if (!Mask::kHidesLast && B::kMasked && block.stores_dscores != 0) store_dscores(block, dp, wave_row, first);
}

}  // namespace fa
