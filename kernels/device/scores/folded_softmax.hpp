// Online softmax of the columns of S^T, for units whose product can start from any number. S starts from the
// column's shift, so P = exp2(S * c) needs no subtraction. fp32; c = softmax_scale * log2(e) > 0.
//
// Most tiles need no maximum. The sum of a tile's exponentials is needed anyway, and shows scores too far
// above the shift (an overflowing P makes it inf). Only then, and at a column's first visible key, the
// maximum is computed, the shift moves to it, O and the sum are corrected, and exponentials are recomputed. P
// stays below Unit::kHighest, which is lossless in fp32 and the 16-bit types. All lanes of a column have the
// same shift and floor. Each lane sums its own keys, and the sums are joined at the end.
//
// A large shift (`is_far_at`) is so coarse that the P of the maximum is off. P is truncated on its way to O
// but exact in the sum, so this could change a 16-bit output. Therefore the truncated P are summed then. With
// a small shift this would make the log-sum-exp too inaccurate.
//
// Beyond kHuge the rounding of products that start from a shift would be large exponents. So such a column's
// products start from 0, its shift is 0, floor is its maximum, and it computes its maximum in each tile.
#pragma once

#include "device/masks/late_mask.hpp"
#include "device/scores/dropout.hpp"
#include "device/scores/far_below.hpp"
#include "device/scores/lane_flags.hpp"

namespace fa {

// kStartsShifted: S starts from the shift. Otherwise from 0, for scores that change before the softmax, and
// stays without it, so a rise leaves no rounding. kCounts: S gets both after its product, and c is 1.
// kDualIssue: values are kept twice or in neighbouring registers, in different banks for paired instructions.
// kFarBelow: scores may be so far below 0 (a bias of the least finite number) that a product starting from
// their shift would be lost, or so coarse that later, higher scores are off. A column of such scores keeps
// its shift in `below`, its products start from 0, and it computes its maximum in each tile.
// kTogether: all columns of a wave see their first key in the same tile, or only one has keys.
template <class Unit, int kSteps, bool kStartsShifted, bool kDualIssue, bool kFarBelow = false,
          bool kTogether = false, bool kCounts = false>
struct FoldedSoftmax : FarBelow<kFarBelow, Unit> {
  using C = typename Unit::C;
  using Flags = LaneFlags<Unit::kWave, Unit::kColumns>;
  static constexpr int kColumns = Unit::kColumns;
  static constexpr int kElements = kSteps * Unit::kRows;  // per column
  static constexpr float kNone = -__builtin_inff();
  static constexpr bool kChecks = Unit::kChecked != 0;  // P is rounded more coarsely than by any shift
  static constexpr bool kKeepsHuge = kStartsShifted && !kChecks && !kCounts && !kFarBelow;
  static constexpr bool kFirstAlone = kDualIssue || kFarBelow || kTogether;  // raised before exponents
  static constexpr float kFar = 1024;    // with larger shifts, truncated P are summed; error below it: 2^-13
  static constexpr float kHuge = 65536;  // products start from smaller shifts; error below it: 2^-8
  static constexpr float kBelow = 64;    // larger shifts are apart with kFarBelow; error below it: 2^-17

  float c;
  float gain;             // log2(Unit::kGain * kTop) in units of scores
  C shift;                // minus the score with exponential Unit::kGain * kTop
  float floor[kColumns];  // a higher maximum moves the shift: 0, with kChecks gain, or -inf before the first
                          // key
  float sum[kColumns];
  int unseen;    // non-zero before the first visible key of any column; wave-uniform
  int huge = 0;  // with kFirstAlone, likewise, if a column's products start from 0
  typename Flags::Held far = {};

  FA_DEVICE explicit FoldedSoftmax(float c) : c(uniform(c)), gain(0), shift{}, unseen(1) {
    // The bound only matters with a scale so small that all P are equal.
    if constexpr (Unit::kGain * Unit::kTop != 1) {
      gain = __builtin_fminf(__builtin_log2f(Unit::kGain * Unit::kTop) * __builtin_amdgcn_rcpf(c), 1e30f);
    }
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      floor[column] = kNone;
      sum[column] = 0;
    }
    if constexpr (kDualIssue) Unit::settle(shift);
    if constexpr (Unit::kWave == 64) this->c = here(this->c), gain = here(gain);  // out of scalar registers
  }

  FA_DEVICE void begin(C* s) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) s[step] = kStartsShifted ? shift : C{};
  }

  // Replaces the scores of kSteps * kM keys by their exponentials and rescales kOut steps of O. `kept()`:
  // dropout's bits, with kFarBelow. `late`: a mask of exponents, and of scores before a maximum.
  template <int kOut, class Mask, class Kept = int, class Late = NoLateMask<Unit>>
  FA_DEVICE void update(C* s, C* o, int lane, int /* hidden */, const Mask& mask,
                        [[maybe_unused]] const Kept& kept = 0, const Late& late = {}) {
    mask();
    C p[kSteps];
    float added[kColumns];
    if (unseen != 0) raise<kOut, kFirstAlone>(s, o, lane, late);
    const float highest = exponentiate(s, p, added, late);
    if constexpr (kFarBelow) {
      if (any_lane<Unit::kWave>(!(highest <= uniform(this->highest)))) {
        if (any_lane<Unit::kWave>(highest > Unit::kHighest || (late.any() && highest != highest))) {
          raise<kOut, false>(s, o, lane, late);
          exponentiate(s, p, added, NoLateMask<Unit>{});
        }
        if (this->drops()) Dropout<Unit, kSteps * Unit::kM>::apply(p, kept());
      }
    } else if (must_raise(highest)) {
      raise<kOut, false>(s, o, lane);
      exponentiate(s, p, added, late);
    }
#pragma unroll
    for (int column = 0; column < kColumns; ++column) sum[column] += added[column];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) s[step] = p[step];
  }

  // Sums over whole columns, in every lane of the column. Afterwards all sums are of P before truncation, and
  // shifts are whole.
  FA_DEVICE void join_sums(int lane) {
    if constexpr (kLone<Unit>) sum_of_wave(sum);
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      if constexpr (!kLone<Unit>) {
        sum[column] = across_lanes<Unit::kPeers>(sum[column], lane, [](float a, float b) { return a + b; });
      }
      if (kKeepsHuge) shift[column] -= sum[column] == 0 ? 0 : floor[column];
    }
    if (Flags::any(far)) {
#pragma unroll
      for (int column = 0; column < kColumns; ++column)
        sum[column] *= Flags::at(far, column) ? Unit::kGain : 1;
    }
  }

  FA_DEVICE bool sees_a_key(int column) const { return sum[column] != 0; }

  // Natural logarithm of the sum of exp(softmax_scale * score). +inf for a column without a visible key.
  FA_DEVICE float log_sum_exp(int column) const {
    constexpr float kLn2 = 0.693147180559945309f;
    return sum[column] == 0 ? __builtin_inff() : (__builtin_amdgcn_logf(sum[column]) + level(column)) * kLn2;
  }

  FA_DEVICE float level(int column) const {  // as Softmax's
    if constexpr (kFarBelow) return -(shift[column] + this->below[column]) * c;
    return -shift[column] * c;
  }

  FA_DEVICE float inverse_sum(int column) const {
    return sum[column] == 0 ? 0 : Unit::kGain * __builtin_amdgcn_rcpf(sum[column]);
  }

 private:
  FA_DEVICE bool must_raise(float highest) const {
    if constexpr (!kKeepsHuge || !kFirstAlone) return any_lane<Unit::kWave>(highest > Unit::kHighest);
    return (any_bit(lanes_with<Unit::kWave>(highest > Unit::kHighest)) | huge) != 0;
  }

  FA_DEVICE bool is_far_at(float shift) const { return !kChecks && !(__builtin_fabsf(shift * c) <= kFar); }

  FA_DEVICE static int element(int f, int column) { return element_of<Unit>(f, column); }

  FA_DEVICE void cut_where_far(C* p) const {
    if (!Flags::any(far)) return;
    bool cuts[kColumns];
#pragma unroll
    for (int column = 0; column < kColumns; ++column) cuts[column] = Flags::at(far, column);
    cut_columns<Unit, kSteps>(p, cuts);
  }

  // Products, then exponentials, then sums: in pairs of one kind. Returns the sum that must not be too high.
  template <class Late>
  FA_DEVICE float exponentiate(const C* s, C* p, float* added, const Late& late) const {
    constexpr int kChains = kChecks ? kElements / Unit::kChecked : kColumns == 1 ? 2 : 1;
    static_assert(kElements % kChains == 0, "chains are equally long");
    if (late.any()) {
      late.scale(s, p, c);
    } else {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        p[step] = kCounts ? s[step] : (kStartsShifted ? s[step] : s[step] + shift) * c;
        if constexpr (kDualIssue && !kCounts) late.settle(p[step], step);
      }
    }
    __builtin_amdgcn_sched_barrier(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < Unit::kRows * kColumns; ++i) p[step][i] = __builtin_amdgcn_exp2f(p[step][i]);
    }
    if constexpr (!kChecks) cut_where_far(p);
    __builtin_amdgcn_sched_barrier(0);
    float highest = 0;
#pragma unroll
    for (int column = 0; column < kColumns; ++column)
      added[column] = sum_of_column<Unit, kElements, kChains>(p, column, highest);
    return kChecks ? highest : largest_of<kColumns>(added);
  }

  // Applies a new shift: adds `moved` to shifted s, and multiplies a non-empty O by `factors`.
  template <int kOut, bool kHasOut>
  FA_DEVICE void move(C* s, C* o, const C& moved, const C& factors, LaneMask<Unit::kWave> blind,
                      bool correct) {
    Unit::settle(shift);
    unseen = any_bit(blind);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (kStartsShifted) {
        Unit::settle(s[step]);
        s[step] += moved;
        Unit::settle(s[step]);
      } else {
        Unit::pin(s[step]);  // or the compiler keeps copies, and spills registers
      }
    }
    if (kHasOut && any_lane<Unit::kWave>(correct)) {
#pragma unroll
      for (int step = 0; step < kOut; ++step) {
        Unit::settle(o[step]);
        o[step] *= factors;
        Unit::settle(o[step]);
      }
    }
  }

  // Moves a column's shift to `to`, adds `by` to its elements and multiplies its sums by `factor`.
  FA_DEVICE void set_column(int column, float by, float to, float factor, C& moved, C& factors) {
    const float by_again = kDualIssue ? here(by) : by, to_again = kDualIssue ? here(to) : to;
#pragma unroll
    for (int row = 0; row < Unit::kRows; ++row) {
      const int at = element(row, column);
      moved[at] = row % 2 == 0 ? by : by_again;
      factors[at] = factor;
      shift[at] = row % 2 == 0 ? to : to_again;
    }
  }

  // Moves the shift to the maximum if this is above the floor, and corrects s, O and the sum. kFirst: only
  // columns without a key so far, with O and sum still 0. Scores of huge ones are left to the next raise.
  template <int kOut, bool kFirst, class Late = NoLateMask<Unit>>
  FA_DEVICE void raise(C* s, C* o, int lane, const Late& late = {}) {
    late.hide(s);
    if constexpr (kFarBelow) return raise_from_below<kOut, kFirst>(s, o, lane);
    C moved, factors;
    bool correct = false;
    LaneMask<Unit::kWave> blind = 0, from_zero = 0;
    [[maybe_unused]] float tops[kColumns];
    if constexpr (kLone<Unit>) highest_of_columns<Unit, kElements>(s, tops);
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const float highest = kLone<Unit> ? tops[column] : highest_of<Unit, kElements>(s, column, lane);
      const bool first = floor[column] == kNone;
      const bool above = (kStartsShifted ? highest : highest + shift[column]) > floor[column];
      const bool rises = kFirst ? first && above : above;
      const float next = kStartsShifted ? shift[column] + (gain - highest) : gain - highest;
      const float was = kKeepsHuge && !first && floor[column] != 0 ? -floor[column] : shift[column];
      const float whole = rises ? next : was;
      const bool is_huge = kKeepsHuge && !(__builtin_fabsf(whole * c) <= kHuge);
      float to = is_huge ? 0 : whole;
      float by = is_huge && kFirst ? 0 : is_huge && rises ? gain - highest : whole - shift[column];
      if constexpr (kChecks || kCounts) raise_exactly<Unit>(shift[column], highest, gain, rises, to, by);
      // Sum and O are still 0 at the first key; exp2 could overflow there, and 0 * inf is NaN.
      const float moves = kKeepsHuge ? whole - was : by;
      const float factor = !kFirst && rises && !first ? __builtin_amdgcn_exp2f(moves * c) : 1;
      correct |= rises && !first;
      blind |= lanes_with<Unit::kWave>(first) & ~lanes_with<Unit::kWave>(above);
      if (kKeepsHuge) from_zero |= lanes_with<Unit::kWave>(is_huge);
      const bool was_far = Flags::at(far, column), is_now = is_far_at(kKeepsHuge ? whole : to);
      if (!kFirst) sum[column] *= factor * (was_far == is_now ? 1 : is_now ? 1 / Unit::kGain : Unit::kGain);
      if (rises) floor[column] = kChecks ? gain : is_huge ? -whole : 0;
      Flags::set(far, column, is_now);
      set_column(column, by, to, factor, moved, factors);
      Flags::settle(far, blind, floor[column], sum[column]);
    }
    if (kKeepsHuge && kFirstAlone) huge = any_bit(from_zero);
    if (kKeepsHuge && !kFirstAlone) blind |= from_zero;
    move<kOut, !kFirst>(s, o, moved, factors, blind, correct);
  }

  // As above with kFarBelow. kFirst: s lacks `below`. With a non-zero `below`, O and the sum move, too.
  template <int kOut, bool kFirst>
  FA_DEVICE void raise_from_below(C* s, C* o, int lane) {
    C moved, factors;
    bool correct = false;
    LaneMask<Unit::kWave> blind = 0;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const float highest = highest_of<Unit, kElements>(s, column, lane);
      const float was = shift[column] + this->below[column], had = kFirst ? shift[column] : was;
      const bool first = floor[column] == kNone, was_below = this->below[column] != 0;
      const bool above = (kFirst ? highest + this->below[column] : highest) > floor[column];
      const bool rises = (!kFirst || first || was_below) && above;
      const float whole = rises ? had + (gain - highest) : was;
      const float by = rises && !kFirst ? gain - highest : whole - had;
      const float moves = kFirst ? whole - was : by;
      const float factor = rises && !first ? __builtin_amdgcn_exp2f(moves * c) : 1;
      correct |= rises && !first;
      const bool is_below = __builtin_fabsf(whole * c + (kHuge - kBelow) / 2) > (kHuge + kBelow) / 2;
      blind |= lanes_with<Unit::kWave>(first) & ~lanes_with<Unit::kWave>(above);
      blind |= lanes_with<Unit::kWave>(is_below);
      const bool was_far = Flags::at(far, column), is_now = is_far_at(whole);
      sum[column] *= factor * (was_far == is_now ? 1 : is_now ? 1 / Unit::kGain : Unit::kGain);
      if (rises) floor[column] = 0;
      Flags::set(far, column, is_now);
      this->below[column] = is_below ? whole : 0;
      set_column(column, by, is_below ? 0 : whole, factor, moved, factors);
      Flags::settle(far, blind, floor[column], sum[column]);
    }
    move<kOut, true>(s, o, moved, factors, blind, correct);
  }
};

}  // namespace fa
