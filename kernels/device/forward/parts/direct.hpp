// The plain loop with loads straight into LDS (Schedule::direct): K and V take no registers on their way, and
// a tile takes one barrier.
#pragma once

#include "device/forward/parts/products.hpp"
#include "device/forward/parts/source.hpp"

namespace fa {

// K or V in flight: `next` is the next tile's first row, and `last` the number of the last row counted from
// there.
template <class B, class Stage>
struct DirectMove {
  const char* next;
  int last;
  typename Stage::Lines lines;

  FA_DEVICE DirectMove(const B& block, const HeadRows& rows)
      : next(rows.base),
        last(rows.rows - 1),
        lines(static_cast<uint32_t>(rows.row_bytes), block.wave, block.lane) {}

  FA_DEVICE bool whole() const { return last >= B::kKeys - 1; }
  // Start to load the next tile: all of it, or its existing rows (at least one).
  FA_DEVICE void load_whole(const B& block, LdsBytes to) {
    lines.load(next, to, block.wave);
    step();
  }
  FA_DEVICE void load_end(const B& block, LdsBytes to) {
    lines.load_end(next, last, to, block.wave, here(block.lane));
    step();
  }
  FA_DEVICE void load(const B& block, LdsBytes to) {
    if (whole()) {
      load_whole(block, to);
    } else {
      load_end(block, to);
    }
  }

 private:
  FA_DEVICE void step() {
    next += B::kKeys * lines.row_bytes;
    last -= B::kKeys;
  }
};

template <class B>
struct DirectMoves {
  DirectMove<B, typename B::Keys> k;
  DirectMove<B, typename B::Values> v;

  FA_DEVICE DirectMoves(const B& block, const HeadRows& k, const HeadRows& v) : k(block, k), v(block, v) {}

  // Loads the next tile of both.
  FA_DEVICE void load(const B& block, int at) {
    if (k.whole()) {
      k.load_whole(block, block.k_tile + at);
      v.load_whole(block, block.v_tile + at);
    } else {
      k.load_end(block, block.k_tile + at);
      v.load_end(block, block.v_tile + at);
    }
  }

  // Loads K of the tile from `first` on, and V of the previous tile, if these start before `end`.
  FA_DEVICE void load_k_ahead(const B& block, int first, int end, int k_at, int v_at) {
    if (((first - end) & (B::kKeys - 2 - k.last)) < 0) {  // both, and all their rows
      k.load_whole(block, block.k_tile + k_at);
      v.load_whole(block, block.v_tile + v_at);
    } else {
      if (first < end) k.load_end(block, block.k_tile + k_at);
      if (first - B::kKeys < end) v.load(block, block.v_tile + v_at);
    }
  }
};

// Operands of a tile's products, read from LDS.
template <class B>
struct DirectOperands {
  LdsBytes rows, turned;  // of the first tile

  FA_DEVICE explicit DirectOperands(const B& block)
      : rows(here(block.k_tile + B::Keys::Rows::offset(block.lane))),
        turned(here(block.v_tile + B::Values::Turned::offset(block.lane))) {}
};

// `weights(s, first)` turns scores into probabilities. The first tile is already in flight.
template <class B, class Weights>
FA_DEVICE void direct(const B& block, const typename B::Tiles& tiles, DirectMoves<B>& moves,
                      const typename B::Q& query, typename B::Out& o, const Weights& weights) {
  using Unit = typename B::Unit;
  static_assert(!B::kDrops, "dropout's bits would have to be found before the products");
  static_assert(B::kConfig.prefetch != 0, "tiles.toml: direct needs prefetch");
  const typename B::P::Place place(block.wave_lds, block.lane);
  const DirectOperands<B> operands(block);
  int at = 0;
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    wait_for_loads();
    workgroup_barrier();  // the tile is there, and all waves are done with the previous one
    const int own = at;
    at = B::kTilesLds - at;
    if (first + B::kKeys < tiles.end) moves.load(block, at);
    if (tiles.seen(first)) {
      const typename B::Keys::Rows rows(operands.rows + own);
      const typename B::Values::Turned turned(operands.turned + own);
      const auto read_key = [&](int n) { return rows.read(n / B::kScoreSteps, n % B::kScoreSteps); };
      const auto read_value = [&](int n) { return turned.read(n / B::kOutSteps, n % B::kOutSteps); };
      typename B::Scores s;
#pragma unroll
      for (int step = 0; step < B::kScoreSteps; ++step) s[step] = {};
      const typename B::Operands first_keys(read_key);
      prioritise<B, 2>();
      first_keys.template run<B::Q::kSteps * B::kScoreSteps>(read_key, [&](int n, const typename Unit::A& k) {
        Unit::multiply(s[n % B::kScoreSteps], k, query.operand(n / B::kScoreSteps));
      });
      prioritise<B, 0>();
      const typename B::Operands first_values(read_value);  // before the exponentials
      __builtin_amdgcn_sched_barrier(0);
      weights(s, first);
      const typename B::P p(place, s);
      prioritise<B, 1>();
      first_values.template run<B::P::kSteps * B::kOutSteps>(
          read_value, [&](int n, const typename Unit::A& v) {
            Unit::multiply(o[n % B::kOutSteps], v, p.operand(n / B::kOutSteps));
          });
      prioritise<B, 0>();
    }
  }
}

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

// The products and the softmax of two tiles in slots. Each slot has a matrix instruction, whose operand was
// read kAhead slots earlier, and a share of the other tile's softmax.
template <class B>
struct Slots {
  using Unit = typename B::Unit;
  using C = typename Unit::C;
  using Weights = typename Unit::B[B::P::kSteps];
  static constexpr int kOfScores = B::Q::kSteps * B::kScoreSteps, kOfOut = B::P::kSteps * B::kOutSteps;
  static constexpr int kAhead = B::kConfig.prefetch;
  static constexpr int kPairs = B::kScoreSteps * Unit::kRows / 2;

  const typename B::Q& query;
  typename B::Softmax& softmax;

  // Computes the scores of one tile, and meanwhile the probabilities of the previous one from its scaled
  // scores.
  template <bool kWithWeights>
  FA_DEVICE void find_scores(const typename B::Keys::Rows& rows, C* scores, const C* before,
                             typename Unit::B* weights) const {
    typename Unit::A k[kAhead];
    const auto read = [&](int n) { return rows.read(n / B::kScoreSteps, n % B::kScoreSteps); };
#pragma unroll
    for (int n = 0; n < kAhead; ++n) k[n] = read(n);
#pragma unroll
    for (int step = 0; step < B::kScoreSteps; ++step) scores[step] = {};
    f32x2 pair = {};
    each_slot<kOfScores>([&](auto slot) {
      constexpr int n = decltype(slot)::kValue;
      __builtin_amdgcn_sched_barrier(0);
      Unit::multiply(scores[n % B::kScoreSteps], k[n % kAhead], query.operand(n / B::kScoreSteps));
      if (n + kAhead < kOfScores) k[n % kAhead] = read(n + kAhead);
      if constexpr (kWithWeights) {
        // The last slot has no share: all probabilities are ready when the scores are.
        constexpr int kShares = kOfScores - 1;
        constexpr int first = share_begin<kPairs, kShares, 0>(n < kShares ? n : kShares);
        constexpr int end = share_begin<kPairs, kShares, 0>(n < kShares ? n + 1 : kShares);
        make_weights<first, end>(before, weights, pair);
      }
    });
    if constexpr (kWithWeights) softmax.sum[0] += pair[0] + pair[1];
  }

  template <int kFirst, int kEnd>
  FA_DEVICE static void make_weights(const C* s, typename Unit::B* weights, f32x2& pair) {
#pragma unroll
    for (int f = kFirst; f < kEnd; f += 2) {
      const C& step = s[f / Unit::kRows];
      const f32x2 p = {__builtin_amdgcn_exp2f(step[f % Unit::kRows]),
                       __builtin_amdgcn_exp2f(step[f % Unit::kRows + 1])};
      // Opaque: the compiler would move later-used values to their use.
      pair = here(f == 0 ? p : pair + p);
      weights[f / Unit::kRun].column[0][f % Unit::kRun / 2] = here(Unit::pack_p(p[0], p[1]));
    }
  }

  // Adds to O. Meanwhile computes the maximum of the next tile's scores.
  FA_DEVICE void add_values(const typename B::Values::Turned& turned, C* o, const typename Unit::B* weights,
                            const C* next, float& maximum) const {
    typename Unit::A v[kAhead];
    const auto read = [&](int n) { return turned.read(n / B::kOutSteps, n % B::kOutSteps); };
#pragma unroll
    for (int n = 0; n < kAhead; ++n) v[n] = read(n);
    each_slot<kOfOut>([&](auto slot) {
      constexpr int n = decltype(slot)::kValue;
      __builtin_amdgcn_sched_barrier(0);
      Unit::multiply(o[n % B::kOutSteps], v[n % kAhead], weights[n / B::kOutSteps]);
      if (n + kAhead < kOfOut) v[n % kAhead] = read(n + kAhead);
      constexpr int first = share_begin<kPairs, kOfOut, 1>(n), end = share_begin<kPairs, kOfOut, 1>(n + 1);
      maximum = here(B::Softmax::template maximum_of<first, end>(maximum, next));
    });
  }
};

// As direct, with the exponentials of a tile between the products of the next tile's scores, and the next
// tile's maximum between the products with V. K is a tile ahead of V: the first two of K and one of V are in
// flight.
template <class B, class Mask>
FA_DEVICE void direct_slots(const B& block, const typename B::Tiles& tiles, DirectMoves<B>& moves,
                            const typename B::Q& query, typename B::Out& o, typename B::Softmax& softmax,
                            const Mask& mask) {
  using Unit = typename B::Unit;
  constexpr int kElements = B::kScoreSteps * Unit::kRows;
  const DirectOperands<B> operands(block);
  const Slots<B> slots{query, softmax};
  typename B::Scores s;
#pragma unroll
  for (int step = 0; step < B::kScoreSteps; ++step) s[step] = anything<typename Unit::C>();
  const auto begin = [&](const typename B::Keys::Rows& rows, int first) {
    slots.template find_scores<false>(rows, s, s, nullptr);
    if (tiles.hidden(first) < 0) mask(s, first);
    const float maximum = B::Softmax::template maximum_of<0, kElements>(softmax.top[0], s);
    softmax.follow_first(maximum, s, block.lane);
  };
  wait_for_loads();
  workgroup_barrier();
  int seen = tiles.seen_sign(tiles.begin);  // by sign
  if (seen < 0) begin(typename B::Keys::Rows(operands.rows), tiles.begin);
  int at = 0;
  for (int next = tiles.begin + B::kKeys; next < tiles.end + B::kKeys; next += B::kKeys) {
    wait_for_loads();
    workgroup_barrier();  // V and the next K are there, and all waves are done with K and the last V
    const int own = at;
    at = B::kTilesLds - at;
    moves.load_k_ahead(block, next + B::kKeys, tiles.end, own, at);
    const int sees_next = tiles.seen_sign(next);
    const typename B::Keys::Rows rows(operands.rows + at);
    if (seen < 0) {
      const typename B::Values::Turned turned(operands.turned + own);
      typename Slots<B>::Weights weights;
      float maximum = softmax.top[0];
      typename B::Scores t;
      softmax.find_exponents(s, s);
      if (sees_next < 0) {
        prioritise<B, 2>();
        slots.template find_scores<true>(rows, t, s, weights);
        if (tiles.hidden(next) < 0) mask(t, next);
      } else {
        f32x2 pair = {};
        Slots<B>::template make_weights<0, kElements>(s, weights, pair);
        softmax.sum[0] += pair[0] + pair[1];
#pragma unroll
        for (int step = 0; step < B::kScoreSteps; ++step) t[step] = anything<typename Unit::C>();
      }
      prioritise<B, 1>();
      slots.add_values(turned, o, weights, t, maximum);
#pragma unroll
      for (int step = 0; step < B::kOutSteps; ++step) Unit::settle(o[step]);
      prioritise<B, 0>();
#pragma unroll
      for (int step = 0; step < B::kScoreSteps; ++step) s[step] = t[step];
      if (sees_next < 0) softmax.template follow<B::kOutSteps>(maximum, s, o, block.lane);
    } else if (sees_next < 0) {
      begin(rows, next);
    }
    seen = sees_next;
  }
}

}  // namespace fa
