// Dropout with a mask, in loops otherwise without dropout. Its values are computed at their use, in branches
// that other calls skip, and products start as without dropout.
//
// Dropped probabilities have dP = 0, so dP less delta is minus delta. The factor of kept ones,
// 1 / (1 - dropout_p), multiplies gradients at the end:
//
//   dS = factor * P * (dP - delta / factor), and without dP where dropped      dV: of factor * P
#pragma once

#include "device/backward/parts/raised.hpp"
#include "device/backward/parts/scoring.hpp"
#include "device/call/backward_params.hpp"

namespace fa {

// Factor of delta in the start values of products.
FA_DEVICE float late_minus(const BwdParams& params) { return -__builtin_amdgcn_rcpf(params.dropout_scale); }

// kThere: the kernel has a mask. Raise: see Raised.
template <bool kThere, class Raise>
struct LateDropout {
  int sign;     // -1: there is dropout; as tile_range.hpp's flags
  float minus;  // see late_minus

  FA_DEVICE explicit LateDropout(const BwdParams& params)
      : sign(uniform(params.dropout_below != 0 ? -1 : 0)), minus(uniform(Raise::raise(late_minus(params)))) {}
  FA_DEVICE bool drops() const { return sign != 0; }
  FA_DEVICE float minus_delta(float delta) const { return delta * minus; }
};
template <class Raise>
struct LateDropout<false, Raise> {
  static constexpr int sign = 0;

  FA_DEVICE explicit LateDropout(const BwdParams&) {}
  FA_DEVICE static bool drops() { return false; }
  FA_DEVICE static float minus_delta(float delta) { return Raise::raise(-delta); }
};

// With queries as lanes: dS in its place. `s`: P, or the scores for it. `minus_delta`: start value of dP, per
// column.
template <class B>
FA_DEVICE void drop_gradients(const B& block, typename B::Result& ds, typename B::Result& s, int wave_row,
                              int first, const float* minus_delta) {
  const BwdParams& params = loaded_here(block.arguments);
  const typename B::Drop dropout{params.dropout_below, Scoring::key_of(params)};
  const int lane = own_lane<B::Unit::kWave>();
  const uint32_t kept = dropout.kept_in_turn(here_uniform(first), lane, [&](int c, unsigned group) {
    return dropout_words(dropout.key, block.batch, block.head, wave_row + B::Unit::column(lane, c), group);
  });
  const auto weight = [&](float x) {
    return B::kConfig.interleaved ? x : __builtin_amdgcn_exp2f(x * block.factor);
  };
  B::in_order(ds, [&](float x, int c, int f) {
    return B::Drop::is_kept(kept, c, f) ? x : weight(element<typename B::Unit>(s, c, f)) * minus_delta[c];
  });
}

// Likewise for dP less delta, before the multiplication with P.
template <class B>
FA_DEVICE void drop_products(const B& block, typename B::Result& dp, int wave_row, int first,
                             const float* minus_delta) {
  const BwdParams& params = loaded_here(block.arguments);
  const typename B::Drop dropout{params.dropout_below, Scoring::key_of(params)};
  const int lane = own_lane<B::Unit::kWave>();
  const uint32_t kept = dropout.kept_in_turn(here_uniform(first), lane, [&](int c, unsigned group) {
    return dropout_words(dropout.key, block.batch, block.head, wave_row + B::Unit::column(lane, c), group);
  });
  B::in_order(dp, [&](float x, int c, int f) { return B::Drop::is_kept(kept, c, f) ? x : minus_delta[c]; });
}

// With keys as lanes: P for the sums of dV, with 0 for dropped elements. The other wave gets P with a
// negative sign for dropped ones.
template <class B>
FA_DEVICE void drop_weights(const B& block, typename B::P& packed, LdsBytes exchange, int head_q, int first,
                            int wave_key) {
  const BwdParams& params = loaded_here(block.arguments);
  const PhiloxKey key = Scoring::key_of(params);
  const int lane = block.lane_again();
  const unsigned group = static_cast<unsigned>(wave_key + B::Unit::column(lane, 0)) / 4;
  const uint32_t kept = B::Drop::bits_in_turn(here_uniform(first), lane, params.dropout_below, [&](int row) {
    return dropout_words(key, block.batch, head_q, row, group);
  });
  B::Drop::negate_dropped(packed, kept);
  B::Exchange::write(exchange, lane, packed);
  packed = packed.without_negative();
}

template <class B, class Source>
FA_DEVICE HeadRows deltas_of(const B& block, const Source& source) {
  return {reinterpret_cast<const char*>(source.delta), sizeof(float), block.sequence.seqlen_q};
}

// dP less delta, with keys as lanes, for P with such a sign. `deltas` are the head's.
template <class B>
FA_DEVICE void drop_products(const B& block, const typename B::P& p, typename B::Result& dp,
                             const HeadRows& deltas, int first) {
  using Unit = typename B::Unit;
  const BufferView<B::kQueries, sizeof(float), B::kTraits.buffer_word3> view(deltas, here_uniform(first));
  const int at = Unit::held_begin(block.lane_again(), B::kQueries);
  const float factor = -RaisedOf<B>::raise(late_minus(loaded_here(block.arguments)));
#pragma unroll
  for (int f = 0; f < B::P::kHeld; f += 4) {
    const f32x4 numbers = view.template read_at<f32x4>((at + Unit::held_step(f)) * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // P is negative, too.
      const uint32_t other = __builtin_bit_cast(uint32_t, numbers[i] * factor);
#pragma unroll
      for (int c = 0; c < B::kColumns; ++c) {
        float& x = element<Unit>(dp, c, f + i);
        const uint32_t dropped = p.negative(c, f + i), own = __builtin_bit_cast(uint32_t, here(x));
        x = here(__builtin_bit_cast(float, (dropped & other) | (~dropped & own)));
      }
    }
    // One after the other: registers are short.
    __builtin_amdgcn_sched_barrier(0);
  }
}

}  // namespace fa
