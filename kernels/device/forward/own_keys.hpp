// Decode in which each wave has tiles of keys of its own: their codes go straight into its registers, and no
// wave waits for another in the loop. Afterwards the waves' sums are joined through LDS, as those of parts of
// the keys are in memory.
#pragma once

#include "device/forward/coded_scores.hpp"
#include "device/forward/parts/block.hpp"
#include "device/forward/parts/source.hpp"

namespace fa {

// `weights(s, first)` makes probabilities of the scores of the tile with first key `first`. The next K and V
// are loaded as soon as their registers are free.
template <class B, class From, class Weights>
FA_DEVICE void own_keys(const B& block, const typename B::Tiles& tiles, const From& k, const From& v,
                        const typename B::Q& query, typename B::Out& o, typename B::Softmax& softmax,
                        typename B::Convert& codes, const Weights& weights) {
  // LLVM 22 counts wait states after v_mfma short on the way from one branch into the other.
  constexpr bool kLate = B::kTraits.matrix_coexecution;
  // For want of registers. Then V is unpacked in parts, after the next V's loads.
  constexpr bool kQueryInLds = B::Q::kLdsBytes != 0;
  constexpr int kApart = B::kKeys * B::kConfig.waves;
  const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
  typename B::Keys own_k;
  typename B::Values own_v;
  int first = tiles.begin + block.wave * B::kKeys;
  load(block, own_k, k, first);
  load(block, own_v, v, first);
  if constexpr (kQueryInLds) workgroup_barrier();  // one wave has filled it
  for (; first < tiles.end; first += kApart) {
    typename B::Scores s;
    softmax.begin(s);
    typename B::Keys::Operands keys;
    codes.unpacking([&](const auto& unpack) {
      own_k.unpack(unpack, keys);
      if constexpr (!kLate) keys.multiply(s, query);
    });
    if (codes.per_key(false)) codes.of_keys = own_k.descales.now();
    own_k.descales.forget();
    load(block, own_k, k, first + kApart);
    if constexpr (kLate) keys.multiply(s, query);
    if (codes.per_key(true)) codes.of_values = own_v.descales.now();
    weights(s, first);
    const typename B::P p(place, s);
    const typename B::Values::Turned turned = own_v.turned();
    typename B::Values::Operands values;
    if constexpr (!kQueryInLds) codes.unpacking([&](const auto& unpack) { turned.unpack(unpack, values); });
    own_v.descales.forget();
    load(block, own_v, v, first + kApart);
    __builtin_amdgcn_sched_barrier(0);  // the loads come before the product
    if constexpr (kQueryInLds) {
      turned.multiply(codes, o, p);
    } else {
      values.multiply(o, p);
    }
  }
}

struct Nothing {};

// Loads the words of Q beside codes, with kEarlyQuery.
template <class B>
FA_DEVICE void begin_query(const B& block, int wave_row, typename B::Q::Begun& begun) {
  using Coded = typename CodedQueryOf<B>::Type;
  if constexpr (kLone<typename B::Unit>) {
    begun = B::Q::Rest::template begin<Coded>(packed_queries(block, wave_row), block.lane);
  } else {
    begun.held.template begin<Coded>(packed_queries(block, wave_row), block.lane);
  }
}

// Codes of a wave's next tile of K and V.
template <class B>
struct EarlyCodes {
  typename B::Keys k;
  typename B::Values v;

  // `between()` starts loads between those of K and V.
  template <class From, class Between>
  FA_DEVICE void load(const B& block, const From& of_k, const From& of_v, int first, const Between& between) {
    fa::load(block, k, of_k, first);
    between();
    fa::load(block, v, of_v, first);
  }
};

// As own_keys, where registers suffice: codes move to other registers as soon as they are there, so the next
// K and V are in flight for most of a tile. `own`: the first codes, loaded before Q. One wait is for all.
template <class B, class From, class Weights>
FA_DEVICE void own_keys_early(const B& block, const typename B::Tiles& tiles, const From& k, const From& v,
                              EarlyCodes<B>& own, const typename B::Q& query, typename B::Out& o,
                              typename B::Softmax& softmax, typename B::Convert& codes,
                              const Weights& weights) {
  // Products take more code than unpacking, so on the VALU they are in no branch by format.
  constexpr bool kOnVector = !B::kTraits.matrix_instructions();
  constexpr int kApart = B::kKeys * B::kConfig.waves;
  const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
  if constexpr (B::Q::kLdsBytes != 0) workgroup_barrier();
  for (int first = tiles.begin + block.wave * B::kKeys; first < tiles.end; first += kApart) {
    auto moved = own.k.moved();
    codes.lift(moved.codes);
    if (codes.per_key(false)) codes.of_keys = own.k.descales.now();
    own.k.descales.forget();
    load(block, own.k, k, first + kApart);
    __builtin_amdgcn_sched_barrier(0);
    typename B::Scores s;
    softmax.begin(s);
    if constexpr (kOnVector) {
      moved.multiply(codes, s, query);
    } else {
      typename B::Keys::Operands keys;
      codes.unpacking([&](const auto& unpack) { moved.unpack(unpack, keys); });
      keys.multiply(s, query);
    }
    if (codes.per_key(true)) codes.of_values = own.v.descales.now();
    weights(s, first);
    const typename B::P p(place, s);
    typename B::Values::Turned turned = own.v.turned();
    codes.lift(turned.of);
    own.v.descales.forget();
    load(block, own.v, v, first + kApart);
    __builtin_amdgcn_sched_barrier(0);
    if constexpr (kOnVector) {
      turned.multiply(codes, o, p);
    } else {
      typename B::Values::Operands values;
      codes.unpacking([&](const auto& unpack) { turned.unpack(unpack, values); });
      values.multiply(o, p);
    }
  }
}

// In LDS, beyond Q, which other waves may still read.
template <class B>
FA_DEVICE LdsBytes join_place(const B& block) {
  return block.k_tile + B::Q::kLdsBytes;
}

// The score that a column's exponentials are relative to.
template <class B>
FA_DEVICE float reached(const typename B::Softmax& softmax, int column) {
  if constexpr (B::kTraits.matrix_coexecution) {
    return softmax.top[column];
  } else {
    return -softmax.shift[column];
  }
}
template <class B>
FA_DEVICE void reach(typename B::Softmax& softmax, int column, float score) {
  if constexpr (B::kTraits.matrix_coexecution) {
    softmax.top[column] = score;
  } else {
    softmax.shift[column] = -score;
  }
}

// How a wave's O counts, for each of a lane's columns.
template <class B>
struct Shares {
  struct {
    float score;      // that its exponentials are relative to
    bool sees_a_key;  // in its own tiles
    float factor;
  } of[B::Unit::kColumns];
};

// Joins the sums of all waves, and returns the shares of this wave's O. Each column's exponentials become
// relative to the highest score that they are relative to in a wave.
template <class B>
FA_DEVICE Shares<B> join_sums_of_waves(const B& block, typename B::Softmax& softmax, float of_out) {
  using Unit = typename B::Unit;
  static_assert(Unit::kColumns == 1 || Unit::kRows == 1, "the softmax has a shift for each column");
  using State = __attribute__((address_space(3))) f32x2*;
  const State states = (State)join_place(block) + Unit::column(block.lane, 0);
  Shares<B> own;
#pragma unroll
  for (int c = 0; c < Unit::kColumns; ++c) {
    own.of[c].sees_a_key = softmax.sum[c] != 0;
    own.of[c].score = reached<B>(softmax, c);
    states[block.wave * Unit::kN + c] = f32x2{own.of[c].score, softmax.sum[c]};
  }
  workgroup_barrier();
#pragma unroll
  for (int c = 0; c < Unit::kColumns; ++c) {
    float most = -__builtin_inff(), all = 0;
#pragma unroll
    for (int wave = 0; wave < B::kConfig.waves; ++wave) {
      const f32x2 other = states[wave * Unit::kN + c];
      most = __builtin_fmaxf(most, other[1] == 0 ? most : other[0]);
    }
    const auto factor = [&](float score) { return __builtin_amdgcn_exp2f((score - most) * softmax.c); };
#pragma unroll
    for (int wave = 0; wave < B::kConfig.waves; ++wave) {
      const f32x2 other = states[wave * Unit::kN + c];
      all += other[1] == 0 ? 0 : other[1] * factor(other[0]);
    }
    if (c == Unit::kColumns - 1) workgroup_barrier();  // before O takes the place
    reach<B>(softmax, c, most);
    softmax.sum[c] = all;
    own.of[c].factor = factor(own.of[c].score) * of_out;
  }
  return own;
}

// A wave's O in as many parts as there are waves. Each wave stores one, the sum of all waves' parts.
template <class B>
struct PartsOfOut {
  using Four = __attribute__((address_space(3))) f32x4*;
  static constexpr int kColumns = B::Unit::kColumns, kOfStep = B::Unit::kRows * kColumns;
  static constexpr int kWaves = B::kConfig.waves, kFours = B::kStoredSteps * kOfStep / 4;

  static_assert(kWaves > 1, "tiles.toml: a wave alone has no other one to join");

  const B& block;
  const typename B::Out& o;
  Shares<B> shares;

  FA_DEVICE f32x4 own(int part, int i) const {
    f32x4 four;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int f = ((part * kFours + i) * 4 + j) / kColumns, c = j % kColumns;
      // Without a visible key O may be NaN. With one, NaN of V stays, whatever its weight.
      const float element = o[f % B::kOutSteps][f / B::kOutSteps * kColumns + c];
      four[j] = shares.of[c].sees_a_key ? element * shares.of[c].factor : 0;
    }
    return four;
  }

  // In LDS, for the same lane of another wave.
  FA_DEVICE Four place(int part, int of_wave, int i) const {
    const int slot = part * (kWaves - 1) + of_wave - (of_wave > part ? 1 : 0);
    return (Four)join_place(block) + (slot * kFours + i) * B::Unit::kWave + block.lane;
  }

  FA_DEVICE void give(int part) const {
#pragma unroll
    for (int i = 0; i < kFours; ++i) *place(part, block.wave, i) = own(part, i);
  }

  FA_DEVICE void take(int part, typename B::Stored& stored) const {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      f32x4 all = own(part, i);
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave) {
        if (wave != part) all += *place(part, wave, i);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) stored[(i * 4 + j) / kOfStep][(i * 4 + j) % kOfStep] = all[j];
    }
  }
};

// Of LoneValues: lanes with other keys of the same rows all get the sum.
template <class B>
FA_DEVICE void join_lanes(const B& block, typename B::Stored& stored) {
#pragma unroll
  for (int step = 0; step < B::kStoredSteps; ++step) {
#pragma unroll
    for (int c = 0; c < B::Unit::kColumns; ++c) {
      stored[step][c] = across_lanes<B::Unit::kWave - ValuesOf<typename B::Unit>::kM>(
          stored[step][c], block.lane, [](float a, float b) { return a + b; });
    }
  }
}

// `stored`: the wave's part of head_dim of O, of all keys. `factor`: of this wave's O.
template <class B>
FA_DEVICE void join_waves(const B& block, typename B::Out& o, typename B::Softmax& softmax, float factor,
                          typename B::Stored& stored) {
  softmax.join_sums(block.lane);
#pragma unroll
  for (int step = 0; step < B::kOutSteps; ++step) B::Unit::settle(o[step]);
  if constexpr (B::kConfig.waves == 1) {
#pragma unroll
    for (int step = 0; step < B::kStoredSteps; ++step) stored[step] = o[step] * factor;
  } else {
    const PartsOfOut<B> parts{block, o, join_sums_of_waves(block, softmax, factor)};
#pragma unroll
    for (int part = 0; part < B::kConfig.waves; ++part) {
      if (part != block.wave) parts.give(part);
    }
    workgroup_barrier();
#pragma unroll
    for (int part = 0; part < B::kConfig.waves; ++part) {
      if (part == block.wave) parts.take(part, stored);
    }
  }
  if constexpr (kLone<typename B::Unit>) join_lanes(block, stored);
}

}  // namespace fa
