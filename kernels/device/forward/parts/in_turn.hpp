// The plain loop with exponentials between matrix instructions, and K and V through registers into LDS
// (Schedule::slots_in_turn).
#pragma once

#include "device/forward/parts/slots.hpp"

namespace fa {

// A lane's operands of a padded tile: step i of the contraction of result step `step`, `at` bytes further.
// All are at constant distances from the first.
template <class B, class Tile>
struct PaddedOperands {
  using Unit = typename B::Unit;
  LdsBytes first;

  FA_DEVICE PaddedOperands(LdsBytes tile, int lane)
      : first(tile + Tile::offset(Unit::a_row(lane), Unit::run_begin(lane) * kOperandBytes<Unit> / 16)) {}
  FA_DEVICE typename Unit::A read(int at, int i, int step) const {
    using Words = __attribute__((address_space(3))) typename Unit::A*;
    return *(Words)(first + at + step * Tile::kPeriodBytes + i * (Unit::kK * kOperandBytes<Unit>));
  }
};

template <class B>
using PaddedSlots =
    Slots<B, PaddedOperands<B, typename B::Keys::Tile>, PaddedOperands<B, typename B::Values::Tile>>;

template <class B>
struct TurnSlots : PaddedSlots<B> {
  using Base = PaddedSlots<B>;
  using C = typename Base::C;
  using Base::ahead, Base::kAhead, Base::kAll, Base::kEarly, Base::kLate, Base::kOfOut, Base::kPairs,
      Base::kParts, Base::softmax;
  using Sums = typename Base::Sums;
  // Slots of O with late exponentials. Their probabilities are there one slot later.
  static constexpr int kLateSlots = kLate > 0 ? kOfOut * kParts * 3 / 8 : 0;
  static_assert(kLateSlots < kEarly / Base::Unit::kRun * B::kOutSteps * kParts || kLate == 0,
                "late probabilities are there in time");
  static_assert(B::kPadded, "tiles.toml: slots_in_turn needs padded_tiles");

  // The late exponentials of slot `part` of O.
  template <int part>
  FA_DEVICE void make_late(const C* exponents, typename Base::Unit::B* weights, Sums& sums) {
    if constexpr (part < kLateSlots) {
      Base::template make_share<part, kLateSlots, kEarly, kAll>(exponents, weights, sums);
    } else if constexpr (kLate > 0 && part == kLateSlots) {
      Base::template finish_weights<kLateSlots, kEarly, kAll>(weights, sums);
    }
  }

  // Adds to O. Meanwhile computes the exponents of the next tile's scores, for the current offset, and their
  // maximum. `k_at`: of the keys that follow. `hide()` masks the scores: its branch runs beside products.
  template <class Highest, class Hide>
  FA_DEVICE void add_values(int v_at, int k_at, C* o, typename Base::Unit::B* weights, const C* next,
                            C* exponents, Highest& maximum, const Hide& hide) {
    // The first slots without exponents.
    constexpr int kSkipped = larger(kLateSlots - 1, kParts);
    [[maybe_unused]] Sums sums{{}, {softmax.sum[0], 0}};
    each_slot<kOfOut * kParts>([&](auto slot) {
      constexpr int part = decltype(slot)::kValue, n = part / kParts;
      __builtin_amdgcn_sched_barrier(0);
      if constexpr (part == kParts) hide();
      __builtin_amdgcn_sched_barrier(0);
      Base::template multiply<part % kParts>(o[n % B::kOutSteps], ahead[n % kAhead],
                                             weights[n / B::kOutSteps]);
      if constexpr (part % kParts == kParts - 1) {
        ahead[n % kAhead] =
            n + kAhead < kOfOut ? Base::value(v_at, n + kAhead) : Base::key(k_at, n + kAhead - kOfOut);
      }
      make_late<part>(exponents, weights, sums);
      constexpr int first = share_begin<kPairs, kOfOut * kParts, kSkipped>(part);
      constexpr int end = share_begin<kPairs, kOfOut * kParts, kSkipped>(part + 1);
      if constexpr (first < end) {
        maximum = kept(B::Softmax::template maximum_of<first, end>(maximum, next));
        softmax.template find_exponents_of<first, end>(exponents, next);
      }
    });
    __builtin_amdgcn_sched_barrier(0);
  }

  // Adds to O after the last scores, with their exponents.
  FA_DEVICE void add_last_values(int v_at, C* o, typename Base::Unit::B* weights, const C* exponents) {
    [[maybe_unused]] Sums sums{{}, {softmax.sum[0], 0}};
    each_slot<kOfOut * kParts>([&](auto slot) {
      constexpr int part = decltype(slot)::kValue, n = part / kParts;
      __builtin_amdgcn_sched_barrier(0);
      Base::template multiply<part % kParts>(o[n % B::kOutSteps], ahead[n % kAhead],
                                             weights[n / B::kOutSteps]);
      make_late<part>(exponents, weights, sums);
      if constexpr (part % kParts == kParts - 1 && n + kAhead < kOfOut) {
        ahead[n % kAhead] = Base::value(v_at, n + kAhead);
      }
    });
    __builtin_amdgcn_sched_barrier(0);
  }
};

// Two groups of waves, one wave of each on a SIMD, take turns at the matrix unit: while one group adds to O,
// the other moves tiles and then computes scores. Two barriers a tile keep them apart: the late group is one
// barrier behind. Three of K and of V are in LDS: K of the next tile and of the one after it, whose first
// operands are read before a barrier, V of this tile, and those being stored while the late group still reads
// the last ones.
template <class B, class Mask>
FA_DEVICE void slots_in_turn(const B& block, const typename B::Tiles& tiles, const Source& k, const Source& v,
                             const typename B::Q& query, typename B::Out& o, typename B::Softmax& softmax,
                             typename B::Convert& convert, const Mask& mask) {
  using Unit = typename B::Unit;
  using Scores = typename B::Scores;
  constexpr int kElements = B::kScoreSteps * Unit::kRows;
  constexpr int kKeyBytes = B::Keys::Tile::kBytes, kValueBytes = B::Values::Tile::kBytes;
  const LdsBytes v_tiles = block.k_tile + 3 * kKeyBytes;
  // The first keys are where the third values will be: late waves read them while others store keys.
  constexpr int kFirstKeys = 3 * kKeyBytes + 2 * kValueBytes;
  static_assert(kKeyBytes <= kValueBytes, "keys fit there");
  typename B::Keys next_k;
  typename B::Values next_v;
  TurnSlots<B> slots{query, softmax, {block.k_tile, block.lane}, {v_tiles, block.lane}, {}};
  Scores s;  // exponents
#pragma unroll
  for (int step = 0; step < B::kScoreSteps; ++step) s[step] = anything<typename Unit::C>();
  {
    typename B::Keys first, second, third;
    load(block, first, k, tiles.begin);
    load(block, second, k, tiles.begin + B::kKeys);
    load(block, next_v, v, tiles.begin);
    load(block, third, k, tiles.begin + 2 * B::kKeys);
    first.store(block.k_tile + kFirstKeys, convert, block.thread);
    second.store(block.k_tile + kKeyBytes, convert, block.thread);
    load(block, next_k, k, tiles.begin + 3 * B::kKeys);
    next_v.store(v_tiles, convert, block.thread);
    load(block, next_v, v, tiles.begin + B::kKeys);
    workgroup_barrier();
    third.store(block.k_tile + 2 * kKeyBytes, convert, block.thread);
  }
  // Of scores in int8, which are loaded a tile before.
  const auto scales_of = [&]([[maybe_unused]] int first) {
    if constexpr (B::kCounts) {
      softmax.begin_tile();
      const int following = first + B::kKeys;
      softmax.load_scales(following < tiles.wave_end ? following : first);
    }
  };
  const auto begin = [&](int k_at, int v_at, int first) {
    Scores t;
    if constexpr (B::kCounts) softmax.load_scales(first);
    slots.fetch_keys(k_at);
    slots.template find_scores<false>(k_at, v_at, t, s, nullptr);
    if (tiles.hidden(first) < 0) mask(t, first);
    scales_of(first);
    const auto maximum = B::Softmax::template maximum_of<0, kElements>(lowest_of(softmax), t);
    softmax.follow_first(maximum, t, block.lane);
    softmax.template find_exponents_of<0, kElements>(s, t);
  };
  // By sign. Without code for waves that see later tiles only: they hide the first ones.
  int seen = B::kFp8 ? -1 : tiles.seen_sign(tiles.begin);
  int k_at = 0, k_next = kKeyBytes, k_last = 2 * kKeyBytes;
  int v_at = 0, v_next = kValueBytes, v_last = 2 * kValueBytes;
  const bool late = uniform(block.wave) >= B::kConfig.waves / 2;  // waves n and n + 4 are on one SIMD
  if (late) workgroup_barrier();
  prioritise<B, 2>();
  if (seen < 0) begin(kFirstKeys, 0, tiles.begin);
  prioritise<B, 0>();
  slots.fetch_keys(k_next);
  workgroup_barrier();
  int tile = tiles.begin, next = tile;
  const auto move = [&] {
    next = tile + B::kKeys;
    next_k.store(block.k_tile + k_at, convert, block.thread);
    next_v.store(v_tiles + v_next, convert, block.thread);
    load(block, next_k, k, next + 3 * B::kKeys);
    load(block, next_v, v, next + B::kKeys);
  };
  // K two tiles on and the next V are there, and all waves are done with the last ones.
  const auto end_turn = [&] {
    workgroup_barrier();
    const int before = k_at, v_before = v_at;
    k_at = k_next, k_next = k_last, k_last = before;
    v_at = v_next, v_next = v_last, v_last = v_before;
    tile = next;
  };
  const auto settle = [&] {
#pragma unroll
    for (int step = 0; step < B::kOutSteps; ++step) Unit::settle(o[step]);
  };
  bool more = true;
  while (seen >= 0) {
    move();
    seen = tiles.seen_sign(next);
    if (seen < 0) {
      begin(k_next, v_at, next);  // before the barrier: after it, the other group replaces these keys
      slots.fetch_keys(k_last);
    }
    workgroup_barrier();
    more = next < tiles.end;
    if (!more) break;
    end_turn();
  }
  if (more) {
    const int last = here_uniform(tiles.wave_end) - B::kKeys;  // turns before it have a following tile
    while (tile < last) {
      move();
      typename TurnSlots<B>::Weights weights;
      Scores t;
      const int hidden = here_uniform(tiles.hidden(next));
      prioritise<B, 1>();
      slots.template find_scores<true>(k_next, v_at, t, s, weights);
      if constexpr (TurnSlots<B>::kLate == 0) {
#pragma unroll
        for (int step = 0; step < B::kScoreSteps; ++step) s[step] = anything<typename Unit::C>();
      }
      prioritise<B, 2>();
      scales_of(next);
      auto maximum = lowest_of(softmax);
      slots.add_values(v_at, k_last, o, weights, t, s, maximum, [&] {
        if (hidden < 0) mask(t, next);
      });
      settle();
      softmax.template follow_exponents<B::kOutSteps>(maximum, s, t, o, block.lane);
      prioritise<B, 0>();
      end_turn();
    }
    move();
    typename TurnSlots<B>::Weights weights;
    slots.make_last_weights(s, weights);
    slots.fetch_values(v_at);
    workgroup_barrier();
    prioritise<B, 2>();
    slots.add_last_values(v_at, o, weights, s);
    settle();
    prioritise<B, 0>();
    while (next < tiles.end) {
      end_turn();
      move();
      workgroup_barrier();
    }
  }
  if (!late) workgroup_barrier();
}

}  // namespace fa
