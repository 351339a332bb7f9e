// The two products of the dq kernel for scores and their gradients, interleaved with the exponentials: for
// ISAs whose matrix instructions overlap with VALU work.
#pragma once

#include "device/backward/parts/block.hpp"

namespace fa {

// An exponential. With a mask the compiler would move all of them behind the branch of dropout, and so behind
// the products that they are interleaved with. With two waves of a SIMD, loops for biases are faster so.
template <class B, bool kLateLse>
FA_DEVICE float in_place(float x) {
  return B::kMasked && (B::kLateNumbers || kLateLse) ? here(x) : x;
}

// S and dP and, in the plain loop, the probabilities in the place of S, computed during the product of dP.
// `hide` is for complete scores. kLateLse: `exponent` is added to exponents.
template <bool kLateLse = false, class B, class Hide>
FA_DEVICE void multiply_both(const B& block, LdsBytes tiles, typename B::Result& s, typename B::Result& dp,
                             const typename B::Q& q, const typename B::Dout& dout, const Hide& hide,
                             [[maybe_unused]] float exponent = 0) {
  using Unit = typename B::Unit;
  using A = typename Unit::A;
  constexpr int kCount = B::Q::kSteps, kAll = kCount + B::Dout::kSteps;
  static_assert(B::kSteps == 1, "a step's rows");
  const auto read = [&](int j) {
    if constexpr (B::kDirect) {
      using Rows = typename B::Turned::Stage::Rows;
      const Rows rows(tiles + Rows::offset(block.reader()));
      return j < kCount ? rows.read(j, 0) : rows.beyond(B::kValuesAt).read(j - kCount, 0);
    } else {
      const int lane = block.reader(), row = Unit::a_row(lane);
      const int unit = ((j < kCount ? j : j - kCount) * Unit::kK + Unit::run_begin(lane)) / 8;
      return j < kCount ? B::Keys::RowTile::template read<A>(B::Keys::rows_of(tiles, 0), row, unit)
                        : B::Values::Tile::template read<A>(tiles + B::kValuesAt, row, unit);
    }
  };
  typename B::Result p;
  // After each part of a step.
  const auto interleave = [&](int i) {
    constexpr int kFirst = Unit::kParts * kCount, kParts = Unit::kParts * kAll - kFirst - 1,
                  kPairs = B::P::kHeld / 2;
    if (i == kFirst) B::template prioritise<2>();
    if (B::kFeatured || i <= kFirst) return;
    const int part = i - kFirst - 1;
    if (part == 0) hide();
    // Two at once. The compiler multiplies them with one instruction where this is faster.
#pragma unroll
    for (int pair = part * kPairs / kParts; pair < (part + 1) * kPairs / kParts; ++pair) {
      const f32x2 scores = {s[0][pair * 2], s[0][pair * 2 + 1]};
      f32x2 exponents;
      if constexpr (kLateLse) {
        exponents = scores * block.factor + exponent;
      } else {
        exponents = scores * block.factor;
      }
      p[0][pair * 2] = in_place<B, kLateLse>(__builtin_amdgcn_exp2f(exponents.x));
      p[0][pair * 2 + 1] = in_place<B, kLateLse>(__builtin_amdgcn_exp2f(exponents.y));
    }
  };
  if constexpr (Unit::kParts == 1) {
    const auto multiply = [&](int j, const A& a) {
      if (j < kCount) {
        Unit::multiply(s[0], a, q.operand(j));
      } else {
        Unit::multiply(dp[0], a, dout.operand(j - kCount));
      }
    };
    read_ahead<kAll, B::kConfig.prefetch>(read, multiply, interleave);
  } else {
    const auto multiply = [&](int j, int half, const A& a) {
      if (j < kCount) {
        Unit::multiply_half(s[0], a, q.operand(j), half);
      } else {
        Unit::multiply_half(dp[0], a, dout.operand(j - kCount), half);
      }
    };
    read_ahead_of_halves<kAll, B::kConfig.prefetch>(read, multiply, interleave);
  }
  if (!B::kFeatured) s[0] = p[0];
  Unit::pin(dp[0]);
  B::template prioritise<0>();
}

}  // namespace fa
