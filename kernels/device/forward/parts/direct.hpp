// The plain loop with loads straight into LDS (Schedule::direct): K and V take no registers on their way, and
// a tile takes one barrier.
#pragma once

#include "device/arch/compiler.hpp"
#include "device/arch/current.hpp"
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
};

// Operands of a tile's products, read from LDS.
template <class B>
struct DirectOperands {
  LdsBytes rows, turned;  // of the first tile

  FA_DEVICE explicit DirectOperands(const B& block)
      : rows(here(block.k_tile + B::Keys::Rows::offset(block.lane))),
        turned(here(block.v_tile + B::Values::Turned::offset(block.lane))) {}
};

// S^T of a tile, from its K in LDS.
template <class B>
FA_DEVICE void find_scores(typename B::Scores& s, const typename B::Keys::Rows& rows,
                           const typename B::Q& query) {
  constexpr int kSteps = B::kScoreSteps;
  const auto read = [&](int n) { return rows.read(n / kSteps, n % kSteps); };
#pragma unroll
  for (int step = 0; step < kSteps; ++step) s[step] = {};
  const typename B::Operands first(read);
  prioritise<B, 2>();
  first.template run<B::Q::kSteps * kSteps>(read, [&](int n, const typename B::Unit::A& k) {
    B::Unit::multiply(s[n % kSteps], k, query.operand(n / kSteps));
  });
  prioritise<B, 0>();
}

// Likewise of int8, by halves of operands: neighbours do not wait for each other's sums.
template <class B>
FA_DEVICE void find_counts(typename B::Scores& s, const typename B::Keys::Rows& rows,
                           const typename B::Q& query) {
  using Unit = typename B::Unit;
  constexpr int kSteps = B::kScoreSteps;
  const auto half = [](int n) { return n / kSteps % 2; };
  const auto read = [&](int n) { return rows.read_half(n / (2 * kSteps), n % kSteps, half(n)); };
  const Prefetch<typename Unit::Half, 2 * B::kConfig.prefetch> first(read);
  prioritise<B, 2>();
  first.template run<2 * B::Q::kSteps * kSteps>(read, [&](int n, const typename Unit::Half& k) {
    const typename Unit::Half q = Unit::half_of(query.operand(n / (2 * kSteps)), half(n));
    if (n < kSteps) {
      Unit::multiply_first_int8(s[n], k, q);
    } else {
      Unit::multiply_int8(s[n % kSteps], k, q);
    }
  });
  prioritise<B, 0>();
}

// `weights(s, first)` turns scores into probabilities, or returns false: then it is called once more with the
// same scores. The first tile is already in flight.
template <class B, class Weights>
FA_DEVICE void direct(const B& block, const typename B::Tiles& tiles, DirectMoves<B>& moves,
                      const typename B::Q& query, typename B::Out& o, typename B::Softmax& softmax,
                      const Weights& weights) {
  using Unit = typename B::Unit;
  static_assert(!B::kDrops, "dropout's bits would have to be found before the products");
  static_assert(B::kConfig.prefetch != 0, "tiles.toml: direct needs prefetch");
  // Of what moves tiles. The softmax of fp8 lets its VALU work wait for these few instructions.
  constexpr int kBetweenTiles = B::kFp8 ? 2 : 0;
  const typename B::P::Place place(block.wave_lds, block.lane);
  const DirectOperands<B> operands(block);
  int at = 0;
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    wait_for_loads();
    if constexpr (B::kCounts) missed_lds_wait<kCurrentGfx>();
    workgroup_barrier();  // the tile is there, and all waves are done with the previous one
    const int own = at;
    at = B::kTilesLds - at;
    if constexpr (B::kCounts) softmax.begin_tile();
    if (first + B::kKeys < tiles.end) {
      moves.load(block, at);
      if constexpr (B::kCounts) softmax.load_scales(first + B::kKeys);
    }
    if (tiles.seen(first)) {
      const typename B::Keys::Rows rows(operands.rows + own);
      const typename B::Values::Turned turned(operands.turned + own);
      const auto read_value = [&](int n) { return turned.read(n / B::kOutSteps, n % B::kOutSteps); };
      typename B::Scores s;
      for (bool again = true; again;) {
        if constexpr (B::kCounts) {
          find_counts<B>(s, rows, query);
        } else {
          find_scores<B>(s, rows, query);
        }
        const typename B::Operands first_values(read_value);  // before the exponentials
        __builtin_amdgcn_sched_barrier(0);
        if (!weights(s, first)) continue;
        const typename B::P p(place, s);
        prioritise<B, 1>();
        first_values.template run<B::P::kSteps * B::kOutSteps>(
            read_value, [&](int n, const typename Unit::A& v) {
              Unit::multiply(o[n % B::kOutSteps], v, p.operand(n / B::kOutSteps));
            });
        prioritise<B, kBetweenTiles>();
        again = false;
      }
    }
  }
}

}  // namespace fa
