// What differs in a forward of q and k in int8, and v in fp8 or fp16: a scale for each row of q, and for
// kKeysOfScale keys.
#pragma once

#include "device/forward/fp8_scores.hpp"
#include "device/masks/bias.hpp"

namespace fa {

template <class B>
struct Int8Scores : PlainScores<B> {
  using Uniform = __attribute__((address_space(4))) const float*;
  static constexpr int kScales = B::kKeys / kKeysOfScale;
  static constexpr float kFrom = 12582912;  // 1.5 * 2^23
  static constexpr int kColumns = B::Unit::kColumns;
  // With several columns, a lane's keys are neighbours: they share a scale.
  static constexpr int kOfKeys = kColumns > 1 ? 1 : kScales;
  static_assert(B::kKeys % kKeysOfScale == 0, "tiles.toml: keys of whole scales");

  Uniform of_keys;
  float of_row[kColumns];           // q's scales of the lane's rows, softmax_scale and log2(e)
  float scales[kOfKeys][kColumns];  // of a tile
  const int lane;

  FA_DEVICE Int8Scores(const B& block, int wave_row) : PlainScores<B>(block, wave_row), lane(block.lane) {
    const Fp8Params& p = fp8_params();
    const int head = head_of_keys(block.params, block.head), last = block.sequence.seqlen_q - 1;
    of_keys = (Uniform)(p.k_descale + block.batch * p.k_descale_batch + head * p.k_descale_head);
    const float* of_q = p.q_descale + block.batch * p.q_descale_batch + block.head * p.q_descale_head;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int row = wave_row + B::Unit::column(lane, c);
      of_row[c] = of_q[row < last ? row : last] * (block.params.scale * Bias::kLog2e);
    }
  }

  // Before the products of the tile with first key `first`.
  FA_DEVICE void load_scales(int first) {
#pragma unroll
    for (int i = 0; i < kOfKeys; ++i) {
      const float own = of_own_keys(static_cast<unsigned>(first) / kKeysOfScale + i);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) scales[i][c] = of_row[c] * own;
    }
  }

  FA_DEVICE static void begin_counts(typename B::Scores& s) {
#pragma unroll
    for (int step = 0; step < B::kScoreSteps; ++step) s[step] = typename B::Unit::C(kFrom);
  }

  // The bits of a sum n of int8 products that started from kFrom are those of the float kFrom + n, exact for
  // |n| < 2^22. Makes them scores minus the maximum.
  template <class Softmax>
  FA_DEVICE void count(typename B::Scores& s, const Softmax& softmax) const {
#pragma unroll
    for (int step = 0; step < B::kScoreSteps; ++step) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float scale = scales[step * kOfKeys / B::kScoreSteps][c];
        const float from = __builtin_fmaf(-kFrom, scale, softmax.shift[c]);
#pragma unroll
        for (int row = 0; row < B::Unit::kRows; ++row) {
          const int i = row * kColumns + c;
          s[step][i] = __builtin_fmaf(s[step][i], scale, from);
        }
      }
    }
  }

 private:
  // The scale of the lane's keys, from scale `at` on.
  FA_DEVICE float of_own_keys(unsigned at) const {
    float found = of_keys[at];
    if constexpr (kColumns > 1) {
#pragma unroll
      for (int i = 1; i < kScales; ++i) {
        if (B::Unit::held_begin(lane, B::kKeys) >= i * kKeysOfScale) found = of_keys[at + i];
      }
    }
    return found;
  }
};

}  // namespace fa
