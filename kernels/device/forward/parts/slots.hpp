// Products with a tile's softmax between matrix instructions, for the loops of direct_slots.hpp and
// in_turn.hpp.
#pragma once

#include "device/forward/parts/direct.hpp"

namespace fa {

// Start of a share of kCount pairs, processed in slot n of kSlots. The first kSkipped slots have none.
template <int kCount, int kSlots, int kSkipped>
constexpr int share_begin(int n) {
  return n <= kSkipped ? 0 : (n - kSkipped) * kCount / (kSlots - kSkipped) * 2;
}

// Calls action(n) for n from 0 to kSlots as constants.
template <int kSlots, int n = 0, class Action>
FA_DEVICE void each_slot(const Action& action) {
  if constexpr (n < kSlots) {
    action(Constant<n>{});
    each_slot<kSlots, n + 1>(action);
  }
}

// The products of a tile in slots. Each slot has a matrix instruction, whose operand was read kAhead steps
// earlier, and a share of the softmax of this tile or of the next one. Instructions that never run beside a
// matrix instruction come last in their slot, and their results are used in the next one.
template <class B, class KeysOf, class ValuesOf>
struct Slots {
  using Unit = typename B::Unit;
  using C = typename Unit::C;
  using A = typename Unit::A;
  using Weights = typename Unit::B[B::P::kSteps];
  static constexpr int kParts = Unit::kParts;
  static constexpr int kOfScores = B::Q::kSteps * B::kScoreSteps, kOfOut = B::P::kSteps * B::kOutSteps;
  static constexpr int kAhead = B::kConfig.prefetch;
  static constexpr int kPairs = B::kScoreSteps * Unit::kRows / 2;
  static constexpr int kAll = kPairs * 2;
  // Exponentials beside scores. If these had two in a slot of half a matrix step, some are late: they run
  // beside the first products of O.
  static constexpr int kLate = kParts > 1 && kAll > kOfScores* kParts ? kAll * 3 / 8 : 0;
  static constexpr int kEarly = kAll - kLate;
  static constexpr int kHeld = 4;
  static_assert(kOfScores % kAhead == 0 && kOfOut % kAhead == 0, "operands keep their registers");
  static_assert(B::kConfig.plain_exponents, "tiles.toml: slots need this switch");
  static_assert(B::Q::kLdsBytes + B::P::kLdsBytes == 0, "tiles.toml: Q is in registers");

  // Of slots with scores or O, where waves have no turns: a matrix instruction waits for one instruction of
  // other waves at most.
  struct Priorities {
    int product, rest;
  };
  static constexpr Priorities kScores = {2, 1}, kOut = {3, 0};

  const typename B::Q& query;
  typename B::Softmax& softmax;
  const KeysOf keys;
  const ValuesOf values;
  A ahead[kAhead];

  FA_DEVICE A key(int at, int n) const { return keys.read(at, n / B::kScoreSteps, n % B::kScoreSteps); }
  FA_DEVICE A value(int at, int n) const { return values.read(at, n / B::kOutSteps, n % B::kOutSteps); }

  FA_DEVICE void fetch_keys(int at) {
#pragma unroll
    for (int n = 0; n < kAhead; ++n) ahead[n] = key(at, n);
  }
  FA_DEVICE void fetch_values(int at) {
#pragma unroll
    for (int n = 0; n < kAhead; ++n) ahead[n] = value(at, n);
  }

  template <int kPart>
  FA_DEVICE static void multiply(C& c, const A& a, const typename Unit::B& b) {
    if constexpr (kParts == 1) {
      Unit::multiply(c, a, b);
      asm volatile("" : : "v"(c));  // or the compiler moves it to a later slot
    } else {
      Unit::multiply_half(c, a, b, kPart);
    }
  }

  FA_DEVICE C start() const {
    if constexpr (B::kCounts) {
      return softmax.start;
    } else {
      return {};
    }
  }

  template <int kPart>
  FA_DEVICE static void multiply_score(C& c, const A& k, const typename Unit::B& q) {
    if constexpr (B::kCounts) {
      Unit::multiply_int8_half(c, k, q, kPart);
    } else {
      multiply<kPart>(c, k, q);
    }
  }

  struct None {
    template <class Slot>
    FA_DEVICE void operator()(Slot) const {}
  };
  struct Sums {
    float p[kHeld], sum[2];  // the last exponentials
  };

  // Exponent f of a tile: element of a vector, or in a register of its own.
  FA_DEVICE static float nth(const C* exponents, int f) {
    return exponents[f / Unit::kRows][f % Unit::kRows];
  }
  FA_DEVICE static float nth(const float* exponents, int f) { return exponents[f]; }

  // The first exponential of share n of kSlots, of those from kFirst on.
  template <int kSlots, int kFirst, int kEnd>
  static constexpr int first_of(int n) {
    return kFirst + n * (kEnd - kFirst) / kSlots;
  }
  // Exponentials [kFirst, kEnd), and use of the ones from kUsed on. Those are used in the next slot.
  template <int kUsed, int kFirst, int kEnd, class Exponents>
  FA_DEVICE static void make_weights(const Exponents& exponents, typename Unit::B* weights, Sums& sums) {
    use<kUsed, kFirst>(weights, sums);
    __builtin_amdgcn_sched_barrier(0);
#pragma unroll
    for (int f = kFirst; f < kEnd; ++f) {
      sums.p[f % kHeld] = here(__builtin_amdgcn_exp2f(nth(exponents, f)));
    }
  }
  template <int kFirst, int kEnd>
  FA_DEVICE static void use(typename Unit::B* weights, Sums& sums) {
#pragma unroll
    for (int f = kFirst; f < kEnd; ++f) {
      sums.sum[f % 2] = here(f == 1 ? sums.p[1] : sums.sum[f % 2] + sums.p[f % kHeld]);
      if (f % 2 != 0) {
        const uint32_t pair = here(Unit::pack_p(sums.p[(f - 1) % kHeld], sums.p[f % kHeld]));
        A& run = weights[f / Unit::kRun].column[0];
        if constexpr (kOperandBytes<Unit> == 2) {
          run[f % Unit::kRun / 2] = pair;
        } else {
          const int word = f % Unit::kRun / 4;
          run[word] = f % 4 == 1 ? pair : here(Unit::join_p(run[word], pair));
        }
      }
    }
  }
  // Share n of kSlots of the exponentials [kBegin, kEnd).
  template <int n, int kSlots, int kBegin, int kEnd, class Exponents>
  FA_DEVICE static void make_share(const Exponents& exponents, typename Unit::B* weights, Sums& sums) {
    constexpr auto at = first_of<kSlots, kBegin, kEnd>;
    make_weights<n == 0 ? kBegin : at(n - 1), at(n), at(n + 1)>(exponents, weights, sums);
  }
  template <int kSlots, int kBegin, int kEnd>
  FA_DEVICE void finish_weights(typename Unit::B* weights, Sums& sums) {
    use<first_of<kSlots, kBegin, kEnd>(kSlots - 1), kEnd>(weights, sums);
    softmax.sum[0] = sums.sum[0] + sums.sum[1];
  }

  // Early probabilities of the last tile.
  template <class Exponents>
  FA_DEVICE void make_last_weights(const Exponents& exponents, typename Unit::B* weights) {
    constexpr int kShares = kOfScores * kParts;
    Sums sums{{}, {softmax.sum[0], 0}};
    each_slot<kShares>(
        [&](auto slot) { make_share<decltype(slot)::kValue, kShares, 0, kEarly>(exponents, weights, sums); });
    finish_weights<kShares, 0, kEarly>(weights, sums);
  }

  // Operand n + kAhead of the scores, or of O after them, in the place of operand n.
  template <int n>
  FA_DEVICE void next_operand(int k_at, int v_at) {
    constexpr int kNext = n + kAhead;
    ahead[n % kAhead] = kNext < kOfScores ? key(k_at, kNext) : value(v_at, kNext - kOfScores);
  }

  // Scores of the tile at `k_at`, and meanwhile probabilities from the exponents of the tile before. `v_at`:
  // of the values that follow. `beside(slot)` adds work to a slot.
  template <bool kWithWeights, class Exponents, class Beside = None>
  FA_DEVICE void find_scores(int k_at, int v_at, C* scores, const Exponents& exponents,
                             typename Unit::B* weights, const Beside& beside = {}) {
#pragma unroll
    for (int step = 0; step < B::kScoreSteps; ++step) scores[step] = start();
    [[maybe_unused]] Sums sums{{}, {softmax.sum[0], 0}};
    if constexpr (kWithWeights) make_share<0, kOfScores * kParts, 0, kEarly>(exponents, weights, sums);
    each_slot<kOfScores * kParts>([&](auto slot) {
      constexpr int part = decltype(slot)::kValue, n = part / kParts;
      __builtin_amdgcn_sched_barrier(0);
      if constexpr (!B::kInTurn) prioritise<B, kScores.product>();
      multiply_score<part % kParts>(scores[n % B::kScoreSteps], ahead[n % kAhead],
                                    query.operand(n / B::kScoreSteps));
      if constexpr (!B::kInTurn) prioritise<B, kScores.rest>();
      // Nothing is read just before the barrier, which waits for it.
      if constexpr (part % kParts == kParts - 1 && (!B::kInTurn || n != kOfScores - 2)) {
        if constexpr (B::kInTurn && n == kOfScores - 1) next_operand<kOfScores - 2>(k_at, v_at);
        next_operand<n>(k_at, v_at);
      }
      beside(slot);
      if constexpr (kWithWeights && part < kOfScores * kParts - 1) {
        make_share<part + 1, kOfScores * kParts, 0, kEarly>(exponents, weights, sums);
      }
      if constexpr (B::kInTurn && kWithWeights && part == kOfScores * kParts - kParts) {
        __builtin_amdgcn_sched_barrier(0);
        workgroup_barrier();  // the other group may start: the last products need registers only
      }
    });
    if constexpr (kWithWeights) finish_weights<kOfScores * kParts, 0, kEarly>(weights, sums);
  }
};

}  // namespace fa
