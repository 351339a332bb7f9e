// Online softmax of the columns of S^T in fp32: the running sum of the unrounded exponentials, and the
// correction of O when a column's scores rise.
//
// P = exp2(S * c + offset) with c = softmax_scale * log2(e) > 0 and offset = log2(gain) - c * top. `top` is a
// score that was the column's maximum. The gain (Unit::kGain) is the mean loss of truncating P to 16 bits,
// times 2^kRaise (Unit). top follows the maximum only after a rise of more than kSlack (Unit). So P is at
// most 2^(kSlack + kRaise), which is lossless in fp32 and the 16-bit types, and most tiles need no correction
// and no exchange between lanes. All lanes of a column have the same top and offset. Each lane sums its own
// keys, and the sums are joined at the end.
//
// A large offset is rounded so coarsely that the P of the maximum is off. P is truncated on its way to O but
// exact in the sum. Where this could change a 16-bit output (`far`), P = exp2((S - top) * c + log2(gain)).
#pragma once

#include "device/arch/device.hpp"

namespace fa {

// kFarBelow: scores, in natural units, may be the least finite number, whose product with log2(e) is
// infinite. kPlainSteps: scores of so many steps are scaled one by one, because packed instructions may not
// run beside a matrix instruction. kTwoSums: two chains of additions, which do not wait for each other.
template <class Unit, int kSteps, bool kFarBelow = false, int kPlainSteps = 0, bool kTwoSums = false>
struct Softmax {
  using C = typename Unit::C;
  static constexpr int kColumns = Unit::kColumns;
  static constexpr float kNone = -__builtin_inff();
  static constexpr bool kIsEager = false;                                 // eager_softmax.hpp
  static constexpr bool kCodes = sizeof(typename Unit::A) == Unit::kRun;  // P becomes codes of 8 bits
  // Any number with all bits of one of these is NaN.
  static constexpr int kIsFar = kFarBelow ? static_cast<int>(0xffe00000) : -1;
  static constexpr int kDropping = 0x7fd00000, kOnlyDropping = 0x00100000;
  static constexpr float kFar = 1024;  // larger offsets subtract top first; error below it: 2^-15

  FA_DEVICE static float gain_log2() { return __builtin_log2f(Unit::kGain) + Unit::kRaise; }
  static constexpr float kOfSum = 1 / (Unit::kGain * (1 << Unit::kRaise));

  float c;
  float slack;          // log2 of the rise that `top` waits for, in units of scores; in a scalar register
  int far = 0;          // kIsFar: yes; with a mask also kDropping; in a scalar register
  float top[kColumns];  // -inf before the first visible key
  float offset[kColumns];
  float sum[kColumns];

  FA_DEVICE explicit Softmax(float c, float rise = Unit::kSlack)
      : c(c), slack(uniform(rise * __builtin_amdgcn_rcpf(c))) {
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      top[column] = kNone;
      offset[column] = gain_log2();
      sum[column] = 0;
    }
  }

  FA_DEVICE static void begin(C* s) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) s[step] = C{};
    // Or these zeros are a constant, and the result is free to be anywhere.
    if constexpr (kOverlapsOperands && kSteps == 1) Unit::settle(s[0]);
  }

  // Replaces the scores of kSteps * kM keys by their exponentials and rescales kOut steps of O. `hidden`:
  // negative if `mask()` has to hide some of the keys. Few tiles need a correction or, with `far`, a
  // subtraction. So one branch serves both, and also dropout with a mask (`kept()` gives its bits): a
  // comparison with NaN always takes the branch.
  template <int kOut, class Mask, class Kept = int>
  FA_DEVICE void update(C* s, C* o, int lane, int hidden, const Mask& mask,
                        [[maybe_unused]] const Kept& kept = 0) {
    float highest[kColumns];
    if (hidden < 0) mask();
    if (any_lane<Unit::kWave>(rises(highest, s, limit()))) {
      if (any_lane<Unit::kWave>(rises(highest, s, slack))) raise<kOut>(highest, o, lane);
      if (is_far()) subtract_top(s);
      if constexpr (kFarBelow && !kSame<Kept, int>) {
        if ((far & kOnlyDropping) != 0) drop(s, kept());
      }
    }
    exponentiate(s);
  }

  // The parts of `update` for one column, for loops that place them between matrix instructions.
  // Adds elements from kFirst on, before kEnd, to the maximum.
  template <int kFirst, int kEnd>
  FA_DEVICE static float maximum_of(float highest, const C* s) {
#pragma unroll
    for (int f = kFirst; f < kEnd; ++f)
      highest = __builtin_fmaxf(highest, s[f / Unit::kRows][f % Unit::kRows]);
    return highest;
  }

  // For the maximum of a lane's first scores. O is zero.
  FA_DEVICE void follow_first(float maximum, C* s, int lane) {
    raise<0>(&maximum, nullptr, lane);
    if (far != 0) subtract_top(s);
  }

  FA_DEVICE float exponent_of(float score) const { return here(__builtin_fmaf(score, c, offset[0])); }

  // Of scores from kFirst on, before kEnd.
  template <int kFirst, int kEnd>
  FA_DEVICE void find_exponents_of(C* exponents, const C* s) const {
#pragma unroll
    for (int f = kFirst; f < kEnd; ++f) {
      float* const row = reinterpret_cast<float*>(&exponents[f / Unit::kRows]);
      row[f % Unit::kRows] = exponent_of(s[f / Unit::kRows][f % Unit::kRows]);
    }
  }

  // For the maximum of later scores, before their exponents, while the products of the scores before add to
  // O. Returns whether to scale O by `factor` afterwards.
  FA_DEVICE int follow(float maximum, C* s, float& factor, int lane) {
    int risen = 0;
    if (any_lane<Unit::kWave>(!(maximum <= top[0] + limit()))) {
      if (any_lane<Unit::kWave>(!(maximum <= top[0] + slack))) {
        factor = raise_columns(&maximum, lane)[0], risen = 1;
      }
      if (far != 0) subtract_top(s);
    }
    return risen;
  }

  // After the products, with the exponents for the offset before.
  template <int kOut>
  FA_DEVICE void follow_exponents(float maximum, C* exponents, C* s, C* o, int lane) {
    if (any_lane<Unit::kWave>(!(maximum <= top[0] + limit()))) {
      if (any_lane<Unit::kWave>(!(maximum <= top[0] + slack))) raise<kOut>(&maximum, o, lane);
      if (far != 0) subtract_top(s);
      find_exponents_of<0, kElements>(exponents, s);
    }
  }

  // With a mask: call before the first tile.
  FA_DEVICE void drop_if(bool drops) { far = drops ? kDropping : 0; }

  // Sums over whole columns, in every lane of the column.
  FA_DEVICE void join_sums(int lane) {
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      sum[column] = across_lanes<Unit::kPeers>(sum[column], lane, [](float a, float b) { return a + b; });
    }
  }

  FA_DEVICE bool sees_a_key(int column) const { return sum[column] != 0; }

  // Natural logarithm of the sum of exp(softmax_scale * score). +inf for a column without a visible key.
  FA_DEVICE float log_sum_exp(int column) const {
    constexpr float kLn2 = 0.693147180559945309f;
    if constexpr (kFarBelow) {
      return sum[column] == 0 ? __builtin_inff()
                              : __builtin_amdgcn_logf(sum[column] * kOfSum) * kLn2 + top[column] * (c * kLn2);
    }
    return sum[column] == 0 ? __builtin_inff()
                            : (__builtin_amdgcn_logf(sum[column] * kOfSum) + top[column] * c) * kLn2;
  }

  // log2 of what the exponentials of `sum` are divided by.
  FA_DEVICE float level(int column) const { return top[column] * c - gain_log2(); }

  FA_DEVICE float inverse_sum(int column) const {
    return sum[column] == 0 ? 0 : Unit::kGain * __builtin_amdgcn_rcpf(sum[column]);
  }

 protected:
  static constexpr int kElements = kSteps * Unit::kRows;  // per column

  // NaN if each tile takes the branch of a rise.
  FA_DEVICE float limit() const { return __builtin_bit_cast(float, __builtin_bit_cast(int, slack) | far); }
  FA_DEVICE bool is_far() const { return kFarBelow ? far < 0 : far != 0; }

  // Scores with dropped probabilities count in the sum, and become -inf.
  FA_DEVICE void drop(C* s, uint32_t kept) {
    static_assert(kColumns == 1 && kElements <= 32, "a bit for each");
#pragma unroll
    for (int f = 0; f < kElements; ++f) {
      float& score = reinterpret_cast<float*>(&s[f / Unit::kRows])[f % Unit::kRows];
      const float value = here(score);
      const bool is_kept = (kept << (32 - kElements + f) & 0x80000000u) != 0;
      const float p = __builtin_amdgcn_exp2f(__builtin_fmaf(value, c, offset[0]));
      sum[0] += is_kept ? 0 : p;
      score = is_kept ? value : kNone;
    }
  }

  FA_DEVICE void exponentiate(C* s) {
    static_assert(kColumns == 1, "neighbours belong to one column");
    if constexpr (kPlainSteps == kSteps) {
#pragma unroll
      for (int f = 0; f < kElements; ++f) {
        float& score = reinterpret_cast<float*>(&s[f / Unit::kRows])[f % Unit::kRows];
        score = __builtin_fmaf(score, c, offset[0]);
      }
    } else {
      if constexpr (kPlainSteps > 0) find_exponents_of<0, kPlainSteps * Unit::kRows>(s, s);
#pragma unroll
      for (int step = kPlainSteps; step < kSteps; ++step)
        s[step] = __builtin_elementwise_fma(s[step], C(c), C(offset[0]));
      // Near a matrix instruction the compiler would split pairs again.
      if constexpr (Unit::kPackedFp32) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) Unit::settle(s[step]);
      }
    }
    f32x2 pair = {}, other = {};
#pragma unroll
    for (int f = 0; f < kElements; f += 2) {
      C& step = s[f / Unit::kRows];
      const int low = f % Unit::kRows, high = low + 1;
      const f32x2 p = {__builtin_amdgcn_exp2f(step[low]), __builtin_amdgcn_exp2f(step[high])};
      step[low] = p[0];
      step[high] = p[1];
      if constexpr (Unit::kPackedFp32) {
        f32x2& chain = kTwoSums && f % 4 != 0 ? other : pair;
        chain = f == 0 || (kTwoSums && f == 2) ? p : chain + p;
      } else {
        sum[0] += p[0];
        sum[0] += p[1];
      }
    }
    if constexpr (Unit::kPackedFp32) {
      if constexpr (kTwoSums) pair += other;
      sum[0] += pair[0];
      sum[0] += pair[1];
    }
  }

  // Each column's maximum in this lane, and whether one has risen by more than `limit`.
  FA_DEVICE bool rises(float* highest, const C* s, float limit) const {
    bool higher = false;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      highest[column] = own_maximum(top[column], s, column);
      higher |= !(highest[column] <= top[column] + limit);
    }
    return higher;
  }

  // Starts from `highest`, at no cost in a maximum of three.
  FA_DEVICE static float own_maximum(float highest, const C* s, int column) {
#pragma unroll
    for (int f = 0; f < kSteps * Unit::kRows; ++f) {
      highest = __builtin_fmaxf(highest, s[f / Unit::kRows][f % Unit::kRows * kColumns + column]);
    }
    return highest;
  }

  template <int kOut>
  FA_DEVICE void raise(const float* highest, C* o, int lane) {
    const C factors = raise_columns(highest, lane);
#pragma unroll
    for (int step = 0; step < kOut; ++step) {
      Unit::settle(o[step]);
      o[step] *= factors;
      Unit::settle(o[step]);
    }
  }

  FA_DEVICE C raise_columns(const float* highest, int lane) {
    C factors;
    bool large = is_far();
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const float factor = raise_column(column, highest[column], lane);
      large |= offset[column] > kFar || offset[column] < -kFar;
#pragma unroll
      for (int row = 0; row < Unit::kRows; ++row) factors[row * kColumns + column] = factor;
    }
    far = any_lane<Unit::kWave>(large) ? far | kIsFar : kFarBelow ? far : 0;
    if constexpr (kCodes) slack = is_far() ? 0 : slack;  // top + slack may be rounded up too far
#pragma unroll
    for (int column = 0; column < kColumns; ++column)
      offset[column] = is_far() ? gain_log2() : offset[column];
    return factors;
  }

  // Returns the factor for the column's earlier sums.
  FA_DEVICE float raise_column(int column, float own, int lane) {
    const float highest =
        across_lanes<Unit::kPeers>(own, lane, [](float a, float b) { return __builtin_fmaxf(a, b); });
    if (!(highest > top[column] + slack)) return 1;  // another column rose, or no key is visible yet
    // 0 at the first key.
    const float factor = __builtin_amdgcn_exp2f((top[column] - highest) * c);
    top[column] = highest;
    offset[column] = gain_log2() - highest * c;
    sum[column] *= factor;
    return factor;
  }

  FA_DEVICE void subtract_top(C* s) const {
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const float subtracted = top[column] == kNone ? 0 : top[column];
#pragma unroll
      for (int f = 0; f < kSteps * Unit::kRows; ++f) {
        s[f / Unit::kRows][f % Unit::kRows * kColumns + column] -= subtracted;
      }
    }
  }
};

}  // namespace fa
