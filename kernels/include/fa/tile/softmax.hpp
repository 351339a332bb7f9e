// Online softmax of the columns of S^T in fp32: the running sum of the exponentials before they are
// rounded, and the correction of O when a column's scores rise.
//
// P = exp2(S * c + offset) with c = softmax_scale * log2(e) > 0 and offset = -c * (a score that was the
// column's maximum).  The offset follows the maximum only when that has risen by more than kSlack: P is at
// most 2^kSlack, which loses nothing in fp32 nor in the 16-bit types, and most tiles correct nothing and
// exchange nothing between lanes.  Offset and limit are the same in all lanes of a column; each lane sums
// its own keys, joined at the end.
#pragma once

#include "fa/arch/device.hpp"

namespace fa {

template <class Unit, int kSteps>
struct Softmax {
  using C = typename Unit::C;
  static constexpr int kColumns = Unit::kColumns;
  static constexpr float kNone = -__builtin_inff();

  static constexpr float kSlack = 8;  // log2 of the largest P

  float c;
  float slack;            // kSlack in units of scores
  float limit[kColumns];  // scores up to here need no correction; -inf before the first visible key
  float offset[kColumns];
  float sum[kColumns];

  FA_DEVICE explicit Softmax(float c) : c(c), slack(kSlack * __builtin_amdgcn_rcpf(c)) {
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      limit[column] = kNone;
      offset[column] = 0;
      sum[column] = 0;
    }
  }

  FA_DEVICE static void begin(C* s) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) s[step] = C{};
  }

  // Takes the scores of kSteps * kM keys in and gives their exponentials back in place; kOut steps of O
  // are rescaled.
  template <int kOut>
  FA_DEVICE void update(C* s, C* o, int lane) {
    float highest[kColumns];
    bool higher = false;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      highest[column] = own_maximum(s, column);
      higher |= highest[column] > limit[column];
    }
    if (any_lane<Unit::kWave>(higher)) raise<kOut>(highest, o, lane);
#pragma unroll
    for (int column = 0; column < kColumns; ++column) exponentiate(s, column);
  }

  // The sums of whole columns; every lane of a column gets it.
  FA_DEVICE void join_sums(int lane) {
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      sum[column] = across_lanes<Unit::kPeers>(sum[column], lane, [](float a, float b) { return a + b; });
    }
  }

  // Natural logarithm of the sum of exp(softmax_scale * score); +inf for a column that sees no key.
  FA_DEVICE float log_sum_exp(int column) const {
    constexpr float kLn2 = 0.693147180559945309f;
    return sum[column] == 0 ? __builtin_inff() : (__builtin_amdgcn_logf(sum[column]) - offset[column]) * kLn2;
  }

  FA_DEVICE float inverse_sum(int column) const {
    return sum[column] == 0 ? 0 : __builtin_amdgcn_rcpf(sum[column]);
  }

 private:
  FA_DEVICE static float own_maximum(const C* s, int column) {
    float highest = s[0][column];
#pragma unroll
    for (int f = 1; f < kSteps * Unit::kRows; ++f) {
      highest = __builtin_fmaxf(highest, s[f / Unit::kRows][f % Unit::kRows * kColumns + column]);
    }
    return highest;
  }

  template <int kOut>
  FA_DEVICE void raise(const float* highest, C* o, int lane) {
    C factors;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const float factor = raise_column(column, highest[column], lane);
#pragma unroll
      for (int row = 0; row < Unit::kRows; ++row) factors[row * kColumns + column] = factor;
    }
#pragma unroll
    for (int step = 0; step < kOut; ++step) {
      Unit::settle(o[step]);
      o[step] *= factors;
      Unit::settle(o[step]);
    }
  }

  // Returns what the column's earlier sums are to be multiplied with.
  FA_DEVICE float raise_column(int column, float own, int lane) {
    const float highest =
        across_lanes<Unit::kPeers>(own, lane, [](float a, float b) { return __builtin_fmaxf(a, b); });
    if (!(highest > limit[column])) return 1;  // another column rose, or no key is visible yet
    const float raised = -highest * c;
    // Sum and O are still 0 at the first key; exp2 could overflow there, and 0 * inf is NaN.
    const float factor = limit[column] == kNone ? 0 : __builtin_amdgcn_exp2f(raised - offset[column]);
    limit[column] = highest + slack;
    offset[column] = raised;
    sum[column] *= factor;
    return factor;
  }

  FA_DEVICE void exponentiate(C* s, int column) {
#pragma unroll
    for (int f = 0; f < kSteps * Unit::kRows; ++f) {
      const int element = f % Unit::kRows * kColumns + column;
      const float p = __builtin_amdgcn_exp2f(__builtin_fmaf(s[f / Unit::kRows][element], c, offset[column]));
      s[f / Unit::kRows][element] = p;
      sum[column] += p;
    }
  }
};

}  // namespace fa
