// Softmax whose exponentials do not wait for the maximum of their scores, for loops short of VALU time. If
// the sum of a lane's exponentials is large, one of them may be. Then the scores are computed again, this
// time with their maximum.
#pragma once

#include "device/scores/softmax.hpp"

namespace fa {

inline constexpr int kLargestSum = 8;  // log2
// A large sum means a larger rise than this. With a larger slack, `top` might stay, and each tile be tried in
// vain.
inline constexpr int kEagerSlack = 2;

template <class Unit, int kSteps, bool kFarBelow, int kPlainSteps, bool kTwoSums>
struct EagerSoftmax : Softmax<Unit, kSteps, kFarBelow, kPlainSteps, kTwoSums> {
  using Base = Softmax<Unit, kSteps, kFarBelow, kPlainSteps, kTwoSums>;
  using C = typename Base::C;
  using Base::sum, Base::top;
  static constexpr bool kIsEager = true;
  static_assert(Base::kCodes || Base::kElements << kEagerSlack < 1 << kLargestSum, "a large sum is a rise");

  // In scalar registers. able: each lane has a top, and none is far. tries: the next tile does not wait.
  int able = 0, tries = 0;

  FA_DEVICE explicit EagerSoftmax(float c) : Base(c, Base::kCodes ? Unit::kSlack : kEagerSlack) {}

  // As Softmax::update. Returns false, with the scores lost, if they have to be computed and given again.
  template <int kOut, class Mask>
  FA_DEVICE bool update(C* s, C* o, int lane, int hidden, const Mask& mask) {
    if (hidden < 0) mask();
    if (tries == 0) find_top<kOut>(s, o, lane);
    return try_exponentials(s, Base::c, Base::offset[0]);
  }

 protected:
  // Of codes, exponents are scores times `scale`, plus `shift`.
  FA_DEVICE bool try_exponentials(C* s, [[maybe_unused]] float scale, [[maybe_unused]] float shift) {
    const float before = sum[0];
    sum[0] = 0;
    bool large;
    if constexpr (Base::kCodes) {
      large = any_lane<Unit::kWave>(!(exponentiate_codes(s, scale, shift) <= Unit::kHighest));
    } else {
      Base::exponentiate(s);
      large = any_lane<Unit::kWave>(!(sum[0] <= 1 << kLargestSum));
    }
    const bool again = large && tries != 0;
    sum[0] = again ? before : before + sum[0];
    tries = again ? 0 : able;
    // Or the compiler copies all of the code for the second time.
    if constexpr (Base::kCodes) tries = uniform(tries);
    return !again;
  }

  template <int kOut>
  FA_DEVICE void raise_eagerly(const float* highest, C* o, int lane) {
    Base::template raise<kOut>(highest, o, lane);
    able = Base::is_far() || any_lane<Unit::kWave>(top[0] == Base::kNone) ? 0 : 1;
  }

  FA_DEVICE static float& nth(C* s, int f) {
    return reinterpret_cast<float*>(&s[f / Unit::kRows])[f % Unit::kRows];
  }

  // Scaling and additions run during matrix instructions of other waves, exponentials do not: once begun,
  // these go before all else. Of codes, exponents are scores times `scale`, plus `shift`.
  FA_DEVICE static void replace_by_exponentials(C* s, float scale, float shift) {
#pragma unroll
    for (int f = 0; f < Base::kElements; ++f) nth(s, f) = here(__builtin_fmaf(nth(s, f), scale, shift));
    __builtin_amdgcn_sched_barrier(0);
    __builtin_amdgcn_s_setprio(3);
#pragma unroll
    for (int f = 0; f < Base::kElements; ++f) nth(s, f) = __builtin_amdgcn_exp2f(nth(s, f));
    __builtin_amdgcn_sched_barrier(0);
    __builtin_amdgcn_s_setprio(0);
  }

  template <int kOut>
  FA_DEVICE void find_top(C* s, C* o, int lane) {
    float highest[Base::kColumns];
    if (any_lane<Unit::kWave>(Base::rises(highest, s, Base::limit()))) {
      if (any_lane<Unit::kWave>(Base::rises(highest, s, Base::slack))) raise_eagerly<kOut>(highest, o, lane);
      if (Base::is_far()) Base::subtract_top(s);
    }
  }

 private:
  // As exponentiate, one by one. Returns the largest sum of kChecked exponentials.
  FA_DEVICE float exponentiate_codes(C* s, float scale, float shift) {
    constexpr int kChains = Base::kElements / Unit::kChecked;
    replace_by_exponentials(s, scale, shift);
    float chain[kChains];
#pragma unroll
    for (int f = 0; f < Base::kElements; ++f) {
      float& own = chain[f % kChains];
      own = f < kChains ? nth(s, f) : own + nth(s, f);
    }
    float highest = 0;
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      highest = __builtin_fmaxf(highest, chain[i]);
      sum[0] += chain[i];
    }
    return highest;
  }
};

// Likewise, where the codes of probabilities show one that is too large (Unit::kSigns).
template <class Unit, int kSteps>
struct EagerCodes : EagerSoftmax<Unit, kSteps, false, kSteps, false> {
  using Base = EagerSoftmax<Unit, kSteps, false, kSteps, false>;
  using C = typename Base::C;
  using Base::able, Base::kElements, Base::nth, Base::sum, Base::tries;
  using Softmax<Unit, kSteps, false, kSteps, false>::update;

  using Base::Base;

  // As EagerSoftmax::update. Probabilities become operands of the next product.
  template <int kOut, class Mask>
  FA_DEVICE bool find_weights(C* s, C* o, typename Unit::B* weights, int lane, int hidden, const Mask& mask) {
    if (hidden < 0) mask();
    if (tries == 0) Base::template find_top<kOut>(s, o, lane);
    Base::replace_by_exponentials(s, Base::c, Base::offset[0]);
    float own = 0;
    uint32_t all = 0;
#pragma unroll
    for (int f = 0; f < kElements; f += 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) own = f + i == 0 ? nth(s, f) : own + nth(s, f + i);
      const uint32_t four = Unit::pack_four(nth(s, f), nth(s, f + 1), nth(s, f + 2), nth(s, f + 3));
      weights[f / Unit::kRun].column[0][f % Unit::kRun / 4] = four;
      all |= four;
    }
    if (any_lane<Unit::kWave>((all & Unit::kSigns) != 0) && tries != 0) {
      tries = 0;
      return false;
    }
    sum[0] += own;
    tries = able;
    return true;
  }
};

}  // namespace fa
