// dS of the dq kernel's loop with all features, from scores and dP.
#pragma once

#include "fa/kernel/scoring.hpp"

namespace fa {

// dS in the place of dP.
template <class B>
FA_DEVICE void gradients_of_scores(const B& block, typename B::Result& s, typename B::Result& dp,
                                   int wave_row, int first, const typename B::Numbers& numbers,
                                   uint32_t bits) {
  using Unit = typename B::Unit;
  using Drop = typename B::Drop;
  // On the path without ALiBi the compiler leaves one wait state too few between the last matrix
  // instruction and what reads its result (LLVM 22; the static checks find it).  It does not count these.
  if constexpr (B::kTraits.unit == MatrixUnit::mfma) asm volatile("s_nop 1");
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
      return (x - numbers.delta[c]) * scoring.cap_derivative(element<Unit>(s, c, f));
    });
  } else {
    B::in_order(dp, [&](float x, int c, int) { return x - numbers.delta[c]; });
  }
  B::in_order(dp, [&](float x, int c, int f) {
    const float away = distance[c] + static_cast<float>(Unit::held_step(f));
    return x * scoring.probability(element<Unit>(s, c, f), away, numbers.lse[c]);
  });
}

}  // namespace fa
