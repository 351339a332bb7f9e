// Values for ALiBi and dropout of a wave of the featured loop.
#pragma once

#include "device/forward/parts/block.hpp"

namespace fa {

// ALiBi slopes of a wave's columns.
template <class B>
struct Slopes {
  static constexpr int kCount = B::kPacked ? B::Unit::kColumns : 1;
  float slope[kCount];
  bool given;

  FA_DEVICE Slopes(const B& block, int wave_row) : slope{}, given(false) {
    if (!B::kFeatured || block.params.alibi_slopes == nullptr) return;
    const float* slopes = block.params.alibi_slopes + block.batch * block.params.alibi_batch;
    if constexpr (B::kPacked) {
      given = true;
      const int last = block.sequence.seqlen_q * block.group - 1;
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        const int row = wave_row + B::Unit::column(block.lane, c);
        slope[c] = slopes[block.head_of(row < last ? row : last)];
      }
    } else {
      slope[0] = uniform(slopes[block.head]);
      given = kManyConditions<typename B::Unit> ? !is_zero(slope[0]) : slope[0] != 0;
    }
  }
  FA_DEVICE bool any() const { return given; }
  FA_DEVICE float of(int c) const { return slope[B::kPacked ? c : 0]; }
};

template <class B>
FA_DEVICE typename B::Drop dropout_of(const B& block) {
  const FwdParams& params = block.params;
  if (!B::kDrops || params.dropout_below == 0) return {0, {0, 0}};
  const auto word = [&](int i) {
    return static_cast<uint32_t>(uniform(static_cast<int>(params.rng_state[i])));
  };
  return {params.dropout_below, {word(0), word(1)}};
}

// Dropout for loops without registers for it, such as those with a mask.
template <class B>
FA_DEVICE uint32_t late_bits(const B& block, int first, int wave_row) {
  const FwdParams& params = reloaded(kernel_arguments());
  const auto word = [&](int i) {
    return static_cast<uint32_t>(uniform(static_cast<int>(params.rng_state[i])));
  };
  const typename B::Drop dropout{params.dropout_below, {word(0), word(1)}};
  const int lane = here(block.lane);
  return dropout.kept_in_turn(here_uniform(first), lane, [&](int c, unsigned group) {
    return dropout_words(dropout.key, block.batch, block.head, wave_row + B::Unit::column(lane, c), group);
  });
}

template <class B>
FA_DEVICE uint32_t kept_bits(const B& block, const typename B::Drop& dropout, int first, int wave_row) {
  if constexpr (kManyConditions<typename B::Unit>) return late_bits(block, first, wave_row);
  return dropout.kept(first, block.reader(), [&](int c, unsigned group) {
    const int row = wave_row + B::Unit::column(block.reader(), c);
    return dropout_words(dropout.key, block.batch, block.head, row, group);
  });
}

// For the softmax: the bits, when asked for.
template <class B>
FA_DEVICE auto late_bits_of(const B& block, int first, int wave_row) {
  if constexpr (B::kDropsLate) {
    return [&block, first, wave_row] { return late_bits(block, first, wave_row); };
  } else {
    return 0;
  }
}

}  // namespace fa
