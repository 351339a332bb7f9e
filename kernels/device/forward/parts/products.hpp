// The two products of a tile, from operands in LDS and registers, and the mask between them.
#pragma once

#include "device/forward/parts/block.hpp"

namespace fa {

// Start of a lane's part of step i of the contraction, in units of 16 bytes.
template <class Unit>
FA_DEVICE int contraction_unit(int i, int lane) {
  return (i * Unit::kK + Unit::run_begin(lane)) / (16 / kOperandBytes<Unit>);
}

// Operand A of step `step` of S^T, at step i of the contraction, for the tile `at` bytes beyond the first.
template <class B>
FA_DEVICE typename B::Unit::A key_operand(const B& block, int row, int i, int step, int at) {
  using Unit = typename B::Unit;
  using Tile = typename B::Keys::Tile;
  const LdsBytes tile = Tile::period(block.k_tile + at, step);
  if constexpr (B::kTwoTiles) {
    // One address for all of a lane's operands.
    const typename Tile::template Row<typename Unit::A> units(tile, row, Unit::run_begin(block.lane) / 8);
    return units.read(i * (Unit::kK / 8));
  } else {
    return Tile::template read<typename Unit::A>(tile, row, contraction_unit<Unit>(i, block.lane));
  }
}

// Operand A of step `step` of O^T. `tile` starts with the wave's first step.
template <class B>
FA_DEVICE typename B::Unit::A value_operand(const B& block, LdsBytes tile, int i, int step) {
  return B::Values::Tile::template read<typename B::Unit::A>(
      B::Values::Tile::period(tile, step), B::Unit::a_row(block.lane),
      contraction_unit<typename B::Unit>(i, block.lane));
}

// Operand n of the first product: all steps of S^T, then the next step of the contraction.
template <class B>
FA_DEVICE typename B::Unit::A nth_key_operand(const B& block, int n, int at) {
  return key_operand(block, B::Unit::a_row(block.reader()), n / B::kScoreSteps, n % B::kScoreSteps, at);
}

template <class B>
FA_DEVICE typename B::Operands prefetch_keys(const B& block, int at) {
  return typename B::Operands([&](int n) { return nth_key_operand(block, n, at); });
}

// Limits the steps whose operands the compiler loads at once, as the config says.
template <class B>
FA_DEVICE void end_of_step(int step) {
  if constexpr (B::kConfig.steps_at_once != 0) {
    if (step % B::kConfig.steps_at_once == B::kConfig.steps_at_once - 1) __builtin_amdgcn_sched_barrier(0);
  }
}

// A wave that multiplies has priority over other waves of its SIMD: a matrix unit working in parallel to the
// VALU should not wait for their exponentials.
template <class B, int kPriority>
FA_DEVICE void prioritise() {
  if constexpr (B::kTraits.matrix_coexecution && !B::kPacked) __builtin_amdgcn_s_setprio(kPriority);
}

// kFirst: `c` may be shared by the starts of several products.
template <class B, bool kFirst = false>
FA_DEVICE void multiply_score(typename B::Unit::C& c, typename B::Unit::A k, const typename B::Unit::B& q) {
  if constexpr (B::kCounts && kFirst && !B::kFp8Values) {
    B::Unit::multiply_first_int8(c, k, q);
  } else if constexpr (B::kCounts) {
    B::Unit::multiply_int8(c, k, q);
  } else if constexpr (kFirst) {
    B::Unit::multiply_first(c, k, q);
  } else {
    B::Unit::multiply(c, k, q);
  }
}

// S^T += K * Q^T. Comes before the second product, during which a wave also computes its exponentials.
template <class B>
FA_DEVICE void add_scores(const B& block, typename B::Scores& s, const typename B::Q& query,
                          const typename B::Operands& prefetched, int at) {
  using Unit = typename B::Unit;
  constexpr int kSteps = B::Q::kSteps;
  if constexpr (B::kConfig.prefetch != 0) {
    prioritise<B, B::kScorePriority>();
    if constexpr (Unit::kColumns > 1) {
      typename Unit::B q[kSteps];  // read with the first K of its step
#pragma unroll
      for (int i = 0; i * B::kScoreSteps < B::kConfig.prefetch; ++i) q[i] = query.operand(i);
      const auto read = [&](int n) {
        if (n % B::kScoreSteps == 0) q[n / B::kScoreSteps] = query.operand(n / B::kScoreSteps);
        return nth_key_operand(block, n, at);
      };
      prefetched.template run<kSteps * B::kScoreSteps>(read, [&](int n, typename Unit::A k) {
        multiply_score<B>(s[n % B::kScoreSteps], k, q[n / B::kScoreSteps]);
      });
    } else {
      prefetched.template run<kSteps * B::kScoreSteps>([&](int n) { return nth_key_operand(block, n, at); },
                                                       [&](int n, typename Unit::A k) {
                                                         multiply_score<B>(s[n % B::kScoreSteps], k,
                                                                           query.operand(n / B::kScoreSteps));
                                                       });
    }
    prioritise<B, 0>();
    return;
  }
  const int row = Unit::a_row(block.reader());
  prioritise<B, B::kScorePriority>();
#pragma unroll B::kUnrolls ? B::Q::kUnroll : 2
  for (int i = 0; i < kSteps; ++i) {
    const typename Unit::B q = query.operand(i);
#pragma unroll
    for (int step = 0; step < B::kScoreSteps; ++step) {
      const auto k = key_operand(block, row, i, step, at);
      if (i == 0) {
        multiply_score<B, true>(s[step], k, q);
      } else {
        multiply_score<B>(s[step], k, q);
      }
      end_of_step<B>(i * B::kScoreSteps + step);
    }
  }
  prioritise<B, 0>();
}

// O^T += V^T * P^T.
template <class B>
FA_DEVICE void add_values(const B& block, typename B::Out& o, const typename B::P& p) {
  using Unit = typename B::Unit;
  constexpr int kSteps = B::P::kSteps;
  if constexpr (B::kConfig.prefetch != 0) {
    const LdsBytes tile = B::Values::Tile::period(block.v_tile, block.first_out_step());
    typename Unit::B b[kSteps];
    const auto read = [&](int n) {
      const int i = n / B::kOutSteps;
      if (n % B::kOutSteps == 0) b[i] = p.operand(i);
      return value_operand(block, tile, i, n % B::kOutSteps);
    };
    const typename B::Operands first(read);
    prioritise<B, B::kOutPriority>();
    first.template run<kSteps * B::kOutSteps>(read, [&](int n, typename Unit::A v) {
      Unit::multiply(o[n % B::kOutSteps], v, b[n / B::kOutSteps]);
    });
    prioritise<B, 0>();
    return;
  }
  prioritise<B, B::kOutPriority>();
#pragma unroll B::kUnrolls ? B::P::kUnroll : 1
  for (int i = 0; i < kSteps; ++i) {
    const typename Unit::B b = p.operand(i);
    const LdsBytes tile = B::Values::Tile::period(block.v_tile, block.first_out_step());
#pragma unroll
    for (int step = 0; step < B::kOutSteps; ++step) {
      Unit::multiply(o[step], value_operand(block, tile, i, step), b);
      end_of_step<B>(step);
    }
  }
  prioritise<B, 0>();
}

// Reads operands A of O^T from rows of V: all steps of O^T, then the next step of the contraction.
template <class B>
struct TurnedValues {
  typename B::Values::Turned turned;
  int first_step;

  FA_DEVICE TurnedValues(const B& block, LdsBytes tile)
      : turned(tile, block.reader()), first_step(block.first_out_step()) {}
  FA_DEVICE typename B::Unit::A operator()(int n) const {
    return turned.read(n / B::kOutSteps, first_step + n % B::kOutSteps);
  }
};

// As add_values, with the first of `values` prefetched.
template <class B>
FA_DEVICE void add_turned_values(const TurnedValues<B>& values, const typename B::Operands& prefetched,
                                 typename B::Out& o, const typename B::P& p) {
  using Unit = typename B::Unit;
  prioritise<B, B::kOutPriority>();
  prefetched.template run<B::P::kSteps * B::kOutSteps>(values, [&](int n, const typename Unit::A& v) {
    Unit::multiply(o[n % B::kOutSteps], v, p.operand(n / B::kOutSteps));
  });
  prioritise<B, 0>();
}

// Sets scores of column c to -inf unless `seen(key)`, with `key` counted from the lane's first.
template <class B, class Seen>
FA_DEVICE void mask_column(typename B::Scores& s, int c, Seen seen) {
  using Unit = typename B::Unit;
  // CDNA has to wait between a comparison and its select. So a few comparisons come first, each in its own
  // scalar registers.
#if __has_builtin(__builtin_amdgcn_inverse_ballot_w64)
  constexpr int kAtOnce = B::kConfig.compares_at_once;
  const auto in_scalars = [](bool condition) {
    uint64_t lanes = __builtin_amdgcn_ballot_w64(condition);
    asm volatile("" : "+s"(lanes));
    return __builtin_amdgcn_inverse_ballot_w64(lanes);
  };
#else  // ROCm 6.4's compiler
  constexpr int kAtOnce = 1;
  const auto in_scalars = [](bool condition) { return condition; };
#endif
#pragma unroll
  for (int step = 0; step < B::kScoreSteps; ++step) {
    Unit::hold(s[step]);
#pragma unroll
    for (int first = 0; first < Unit::kRows; first += kAtOnce) {
      bool shown[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        shown[i] = seen(Unit::held_step(step * Unit::kRows + first + i));
        if constexpr (kAtOnce > 1) shown[i] = in_scalars(shown[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        float& score = reinterpret_cast<float*>(&s[step])[(first + i) * Unit::kColumns + c];
        score = shown[i] ? score : -__builtin_inff();
      }
    }
    Unit::hold(s[step]);
  }
}

// The mask's values of the window. With a short prologue, they are computed inside the loop only.
template <class B>
FA_DEVICE decltype(auto) mask_of(const B& block) {
  if constexpr (B::kConfig.short_prologue) {
    const Visibility& visible = block.visible;
    return Visibility{here_uniform(visible.seqlen_q), here_uniform(visible.seqlen_k),
                      here_uniform(visible.window_left), here_uniform(visible.window_right)};
  } else {
    return (block.visible);  // not a copy, for which the compiler would take other registers
  }
}

// Hides keys before begin(query) of each row.
template <class B>
FA_DEVICE void mask_begin(const B& block, const Visibility& visible, typename B::Scores& s, int first,
                          int wave_row) {
  using Unit = typename B::Unit;
#pragma unroll
  for (int c = 0; c < Unit::kColumns; ++c) {
    const int query = block.query_of(wave_row + here(Unit::column(block.lane, c)));
    const int left = visible.begin(query) - first - Unit::held_begin(block.reader(), B::kKeys);
    mask_column<B>(s, c, [=](int key) { return key >= left; });
  }
}

// Hides keys from end(query) of each row on.
template <class B>
FA_DEVICE void mask_end(const B& block, const Visibility& visible, typename B::Scores& s, int first,
                        int wave_row) {
  using Unit = typename B::Unit;
#pragma unroll
  for (int c = 0; c < Unit::kColumns; ++c) {
    const int query = block.query_of(wave_row + here(Unit::column(block.lane, c)));
    const int left = visible.end(query) - first - Unit::held_begin(block.reader(), B::kKeys);
    mask_column<B>(s, c, [=](int key) { return key < left; });
  }
}

}  // namespace fa
