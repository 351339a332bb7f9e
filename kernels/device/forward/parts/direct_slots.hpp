// The plain loop with loads straight into LDS and exponentials between matrix instructions
// (Schedule::direct_slots).
#pragma once

#include "device/forward/parts/slots.hpp"

namespace fa {

// A lane's operands of a tile `at` bytes further: Keys::Rows or Values::Turned.
template <class B, class Operands>
struct DirectRead {
  Operands first;

  FA_DEVICE typename B::Unit::A read(int at, int i, int step) const { return first.beyond(at).read(i, step); }
};

template <class B>
using DirectReadSlots =
    Slots<B, DirectRead<B, typename B::Keys::Rows>, DirectRead<B, typename B::Values::Turned>>;

template <class B>
struct DirectSlots : DirectReadSlots<B> {
  using Base = DirectReadSlots<B>;
  using C = typename Base::C;
  using Base::ahead, Base::kAhead, Base::kOfOut, Base::kPairs, Base::softmax;
  static_assert(Base::kParts == 1, "a matrix step is one instruction");

  // Adds to O. Meanwhile finds the maximum of the next tile's scores and calls `follow(maximum)`, then
  // computes their exponents. `k_at`: of the keys that follow. `hide()` masks the scores.
  template <class Hide, class Follow>
  FA_DEVICE void add_values(int v_at, int k_at, C* o, const typename Base::Unit::B* weights, const C* next,
                            float* exponents, const Hide& hide, const Follow& follow) {
    constexpr int kHalf = kOfOut / 2;  // maxima before, exponents from there on
    float maximum = softmax.top[0];
    each_slot<kOfOut>([&](auto slot) {
      constexpr int n = decltype(slot)::kValue;
      __builtin_amdgcn_sched_barrier(0);
      if constexpr (n == 1) hide();
      __builtin_amdgcn_sched_barrier(0);
      prioritise<B, Base::kOut.product>();
      Base::template multiply<0>(o[n % B::kOutSteps], ahead[n % kAhead], weights[n / B::kOutSteps]);
      prioritise<B, Base::kOut.rest>();
      ahead[n % kAhead] =
          n + kAhead < kOfOut ? Base::value(v_at, n + kAhead) : Base::key(k_at, n + kAhead - kOfOut);
      if constexpr (n <= kHalf) {
        constexpr int first = share_begin<kPairs, kHalf + 1, 1>(n),
                      end = share_begin<kPairs, kHalf + 1, 1>(n + 1);
        if constexpr (first < end) maximum = here(B::Softmax::template maximum_of<first, end>(maximum, next));
        if constexpr (n == kHalf) follow(maximum);
      } else {
        // The last half first: their registers are free.
        constexpr int kAll = kPairs * 2, kShares = kOfOut - kHalf - 1, m = n - kHalf - 1;
        constexpr int first = m * kAll / kShares, end = (m + 1) * kAll / kShares;
        each_slot<end - first>([&](auto one) {
          constexpr int f = (first + decltype(one)::kValue + kAll / 2) % kAll;
          exponents[f] = softmax.exponent_of(Base::nth(next, f));
        });
      }
    });
    __builtin_amdgcn_sched_barrier(0);
  }

  // Adds to O after the last scores.
  FA_DEVICE void add_last_values(int v_at, C* o, const typename Base::Unit::B* weights) {
    each_slot<kOfOut>([&](auto slot) {
      constexpr int n = decltype(slot)::kValue;
      __builtin_amdgcn_sched_barrier(0);
      Base::template multiply<0>(o[n % B::kOutSteps], ahead[n % kAhead], weights[n / B::kOutSteps]);
      if constexpr (n + kAhead < kOfOut) ahead[n % kAhead] = Base::value(v_at, n + kAhead);
    });
  }
};

// K or V on their way straight into LDS: `next` is the next tile's first row.
template <class B, class Stage>
struct SlotMove {
  using Lines = NearLines<Stage>;
  const char* next;
  const Lines lines;
  const LdsBytes place;  // of the wave's loads of the first tile

  FA_DEVICE SlotMove(const B& block, const HeadRows& rows, LdsBytes tile)
      : next(rows.base),
        lines(static_cast<uint32_t>(rows.row_bytes), block.wave, block.lane),
        place(Lines::place(tile, block.wave)) {}

  FA_DEVICE void step() { next += B::kKeys * lines.row_bytes; }
  template <int i>
  FA_DEVICE void load(int at) const {
    lines.template load<i>(next, place + at);
  }
  // Loads the next tile, with first key `first`: all of it, or its existing rows (at least one).
  FA_DEVICE void load_any(const B& block, int first, int at) {
    const int rows = block.sequence.seqlen_k - first;
    if (rows >= B::kKeys) {
      lines.load_all(next, place + at);
    } else {
      lines.load_end(next, rows - 1, place + at, block.wave, here(block.lane));
    }
    step();
  }
};

template <class B>
struct SlotMoves {
  SlotMove<B, typename B::Keys> k;
  SlotMove<B, typename B::Values> v;

  FA_DEVICE SlotMoves(const B& block, const HeadRows& k, const HeadRows& v)
      : k(block, k, block.k_tile), v(block, v, block.v_tile) {}

  // Starts to load the first three tiles of K and the first one of V, of those before `end`.
  FA_DEVICE void load_first(const B& block, int begin, int end) {
    k.load_any(block, begin, 0);
    v.load_any(block, begin, 0);
#pragma unroll
    for (int n = 1; n < 3; ++n) {
      if (begin + n * B::kKeys < end) k.load_any(block, begin + n * B::kKeys, n * B::Keys::Tile::kBytes);
    }
  }
  // Loads V of the tile after `tile`, if it starts before `end`.
  FA_DEVICE void load_values(const B& block, int tile, int end, int v_at) {
    if (tile + B::kKeys < end) v.load_any(block, tile + B::kKeys, v_at);
  }
  // Likewise, and K of the third tile after it.
  FA_DEVICE void load_any(const B& block, int tile, int end, int k_at, int v_at) {
    load_values(block, tile, end, v_at);
    if (tile + 3 * B::kKeys < end) k.load_any(block, tile + 3 * B::kKeys, k_at);
  }
  // The tile from which on load_any does not load both, and all of their rows.
  FA_DEVICE static int end_of_whole(const B& block, int end) {
    const int rows = block.sequence.seqlen_k;
    return here_uniform(rows < end ? rows : end) - 4 * B::kKeys + 1;
  }
  // Of both, one after the other.
  static constexpr int kLoads = NearLines<typename B::Keys>::kLoads;
  template <int n>
  FA_DEVICE void load(int k_at, int v_at) const {
    if constexpr (n < kLoads) {
      v.template load<n>(v_at);
    } else if constexpr (n < 2 * kLoads) {
      k.template load<n - kLoads>(k_at);
    }
  }
  FA_DEVICE void step() {
    k.step();
    v.step();
  }
};

// Three of K and two of V are in LDS: K of the next tile, of the one after it, whose first operands are read
// before a barrier, and the one being loaded; V of this tile and of the next one. Each tile is a turn with a
// barrier: also those that the wave does not see.
template <class B, class Mask>
FA_DEVICE void direct_slots(const B& block, const typename B::Tiles& tiles, SlotMoves<B>& moves,
                            const typename B::Q& query, typename B::Out& o, typename B::Softmax& softmax,
                            const Mask& mask) {
  using Unit = typename B::Unit;
  using Scores = typename B::Scores;
  constexpr int kElements = B::kScoreSteps * Unit::kRows;
  constexpr int kKeyBytes = B::Keys::Tile::kBytes, kValueBytes = B::Values::Tile::kBytes;
  const DirectOperands<B> operands(block);
  DirectSlots<B> slots{{query,
                        softmax,
                        {typename B::Keys::Rows(operands.rows)},
                        {typename B::Values::Turned(operands.turned)},
                        {}}};
  int k_at = 0, k_next = kKeyBytes, k_last = 2 * kKeyBytes;  // of this turn's tile and the following ones
  int v_at = 0;
  const auto v_next = [&] { return kValueBytes - v_at; };
  const auto end_turn = [&] {
    const int before = k_at;
    k_at = k_next, k_next = k_last, k_last = before;
    v_at = v_next();
  };
  const auto meet = [] {
    wait_for_loads();
    workgroup_barrier();
  };
  // V and the K after the next are there, and all waves are done with K and the last V.
  const auto begin_turn = [&](int tile) {
    meet();
    moves.load_any(block, tile, tiles.end, k_at, v_next());
  };
  meet();
  int tile = tiles.begin;
  for (; tiles.seen_sign(tile) >= 0 && tile < tiles.end; tile += B::kKeys) {
    begin_turn(tile);
    end_turn();
  }
  if (tile >= tiles.end) return;
  float s[kElements];  // exponents
  {
    Scores t;
    slots.fetch_keys(k_at);
    slots.template find_scores<false>(k_at, v_at, t, s, nullptr);
    if (tiles.hidden(tile) < 0) mask(t, tile);
    const float maximum = B::Softmax::template maximum_of<0, kElements>(softmax.top[0], t);
    softmax.follow_first(maximum, t, block.lane);
#pragma unroll
    for (int f = 0; f < kElements; ++f) s[f] = softmax.exponent_of(DirectSlots<B>::nth(t, f));
  }
  slots.fetch_keys(k_next);
  // A turn of a tile whose following tile is seen, too.
  const auto turn = [&](auto whole) {
    constexpr bool kWhole = decltype(whole)::kValue != 0;  // nothing is hidden, and all rows are loaded
    const int next = tile + B::kKeys;
    typename DirectSlots<B>::Weights weights;
    Scores t;
    if constexpr (kWhole) {
      meet();
    } else {
      begin_turn(tile);
    }
    slots.template find_scores<true>(k_next, v_at, t, s, weights, [&](auto n) {
      if constexpr (kWhole) moves.template load<decltype(n)::kValue>(k_at, v_next());
    });
    if constexpr (kWhole) moves.step();
    float factor = 1;
    int risen = 0;
    slots.add_values(
        v_at, k_last, o, weights, t, s,
        [&] {
          if constexpr (!kWhole) {
            if (tiles.hidden(next) < 0) mask(t, next);
          }
        },
        [&](float maximum) { risen = softmax.follow(maximum, t, factor, here(block.lane)); });
#pragma unroll
    for (int step = 0; step < B::kOutSteps; ++step) Unit::settle(o[step]);
    if (here_uniform(risen) != 0) {
#pragma unroll
      for (int step = 0; step < B::kOutSteps; ++step) {
        o[step] *= factor;
        Unit::settle(o[step]);
      }
    }
    tile = next;
    end_turn();
  };
  const int last = tiles.wave_end - B::kKeys;  // turns before it have a following tile
  const int shown = tiles.unmasked_end - 2 * B::kKeys + 1, loaded = moves.end_of_whole(block, tiles.end);
  // In two steps: the compiler would find the least of three in vector registers.
  const int least = here_uniform(last < shown ? last : shown);
  const int whole_end = here_uniform(least < loaded ? least : loaded);
  while (tile < last) {
    if (tile >= tiles.unmasked_begin - B::kKeys) {
      while (tile < whole_end) turn(Constant<1>{});
      if (tile >= last) break;
    }
    turn(Constant<0>{});
  }
  begin_turn(tile);
  {
    typename DirectSlots<B>::Weights weights;
    slots.fetch_values(v_at);
    slots.make_last_weights(s, weights);
    slots.add_last_values(v_at, o, weights);
  }
  end_turn();
  static_assert((B::kConfig.waves - 1) * Unit::kN <= 3 * B::kKeys, "no K is left to load after a wave's end");
  for (tile += B::kKeys; tile < tiles.end; tile += B::kKeys) {
    meet();
    moves.load_values(block, tile, tiles.end, v_next());
    end_turn();
  }
}

}  // namespace fa
