// Start values of a wave's first product of a tile, masking of its results, and writing of its sums.
#pragma once

#include "device/backward/dkdv/block.hpp"

namespace fa {

// `own_term`: for waves that read their numbers themselves (Moves::first_term).
template <class B>
FA_DEVICE void begin(const B& block, typename B::Result& result, float own_term = 0,
                     const typename B::Unit::C& zeros = {}) {
  using Unit = typename B::Unit;
  if constexpr (B::Numbers::kByWave) {
    static_assert(B::kSteps == 1, "a lane has one row");
    result[0] = Unit::broadcast_sums(own_term, B::kConfig.kept_zeros ? zeros : Unit::zero());
  } else if constexpr (B::kFeatured) {
#pragma unroll
    for (int step = 0; step < B::kSteps; ++step) {
      result[step] = typename Unit::C{};
      Unit::settle(result[step]);
    }
  } else if constexpr (Unit::kMultipliesFp32) {
#pragma unroll
    for (int step = 0; step < B::kSteps; ++step) {
      const int row = Unit::slot_of_row(step * Unit::kM + Unit::a_row(block.lane), B::kQueries);
      static_assert(Unit::slot_of_row(Unit::slot_of_row(4, B::kQueries), B::kQueries) == 4,
                    "its own inverse");
      result[step] = Unit::broadcast_rows(block.numbers()[row], block.lane);
    }
  } else if (B::kMasked && block.is(Role::weights)) {
#pragma unroll
    for (typename Unit::C& each : result) each = {};
  } else {
#pragma unroll
    for (int c = 0; c < B::kColumns; ++c) {
#pragma unroll
      for (int f = 0; f < B::P::kHeld; ++f) element<Unit>(result, c, f) = block.number(f);
    }
  }
}

// `mask` with a bit for each row of a lane. A comparison for each takes twice the instructions.
template <class B>
FA_DEVICE void mask_by_bits(const B& block, typename B::Result& result, int first, int wave_key) {
  using Unit = typename B::Unit;
  constexpr int kPast = Unit::held_step(B::P::kHeld - 1) + 1;
  static_assert(Unit::kColumns == 1 && kPast < 32, "a bit each");
  // Opaque: few tiles are masked, and derived values would be kept in registers through all.
  const int left = here_uniform(block.visible.window_left), right = here_uniform(block.visible.window_right);
  const int lane = block.lane_again() & (Unit::kWave - 1);  // so the compiler sees a non-negative number
  const int own = Unit::held_begin(lane, B::kQueries), column = Unit::column(lane, 0);
  // The diagonal's position in the tile, for the wave's first key. Without a window any distant bound is
  // correct: lengths are at most kMaxLength.
  constexpr int kFar = static_cast<int>(kMaxLength);
  const int diagonal = wave_key - block.visible.seqlen_k + block.visible.seqlen_q - first;
  const int begin = column - own + (right < 0 ? -kFar : diagonal - right);
  const int end = column - own + (left < 0 ? kFar : diagonal + left + 1);
  const int last = block.visible.seqlen_q - first - own;
  const auto from_row = [](int row) { return ~0u << (row < 0 ? 0 : row > kPast ? kPast : row); };
  const uint32_t rows = here(from_row(begin) & ~from_row(end < last ? end : last));
  B::in_order(result, [&](float value, int, int f) {
    const int all = here(__builtin_amdgcn_sbfe(static_cast<int>(rows), Unit::held_step(f), 1));
    return __builtin_bit_cast(float, __builtin_bit_cast(int, value) & all);
  });
}

// Hides from each key the queries that do not see it.
template <class B>
FA_DEVICE void mask(const B& block, typename B::Result& result, int first, int wave_key) {
  using Unit = typename B::Unit;
  if constexpr (B::kConfig.bit_masks) return mask_by_bits(block, result, first, wave_key);
  int begin[B::kColumns], end[B::kColumns];
  Visibility visible = block.visible;
  if constexpr (B::kWithDq) {
    // Opaque: few tiles are masked, and derived values would be kept in registers through all.
    visible.window_left = here_uniform(visible.window_left);
    visible.window_right = here_uniform(visible.window_right);
  }
#pragma unroll
  for (int c = 0; c < B::kColumns; ++c) {
    const int key = wave_key + here(Unit::column(block.lane, c));
    const int from = first + Unit::held_begin(block.lane, B::kQueries);
    begin[c] = visible.first_row(key) - from;
    end[c] = visible.last_row(key) - from;
  }
  B::in_order(result, [&](float value, int c, int f) {
    const int row = Unit::held_step(f);
    return row >= begin[c] && row < end[c] ? value : 0;
  });
}

// Writes a wave's rows of dv or dk, of one block of its columns.
template <class B>
FA_DEVICE void store(const B& block, int wave_key, typename B::Sums& sums) {
#pragma unroll
  for (int step = 0; step < B::kSumSteps; ++step) B::Unit::settle(sums[step]);
  const BwdParams& params = loaded_here(block.arguments);
  const bool of_v = block.is(Role::weights),
             dropping = (B::kFeatured || B::kMasked) && params.dropout_below != 0;
  BwdGradient gradient = of_v ? params.dv : params.dk;
  float scale = params.scale;
  const int32_t* ends = nullptr;
  if constexpr (B::kEndsAtOnce) {
    auto* data = static_cast<char*>(gradient.data);
    ends = params.cu_seqlens_k;
    loaded_together(scale, gradient.batch, gradient.row, gradient.head);
    pointers_together(data, ends);
    gradient.data = data;
  }
  if constexpr (B::kMasked) scale *= params.dropout_scale;
  // dS is truncated after P, whose gain compensated for one loss only.
  float factor = of_v ? (dropping ? params.dropout_scale : 1) : scale * RaisedOf<B>::kOfDk;
  if (RaisedOf<B>::kIs && of_v) factor *= RaisedOf<B>::kOfDv;
  const Sequence& sequence = block.sequence;
  const int64_t at = offset_of(gradient, is_ragged<B>(B::kEndsAtOnce ? ends : params.cu_seqlens_k),
                               block.batch, block.head_k, sequence.k_first);
  Visibility visible = block.visible;
  // The compiler would compute values derived from these before the loop, in kernels without free scalar
  // registers.
  if constexpr (B::kShortOfScalars) {
    visible.window_left = here_uniform(visible.window_left);
    visible.window_right = here_uniform(visible.window_right);
  }
  const auto seen = [&](int key) { return visible.first_row(key) < visible.last_row(key); };
  if (B::kValueDim != B::kHeadDim && of_v) {
    store_gradient<typename B::Unit, B::kDType, B::kValueDim>(sums, gradient, at, wave_key, sequence.seqlen_k,
                                                              factor, block.passer(), seen);
    return;
  }
  store_gradient<typename B::Unit, B::kDType, B::kHeadDim>(
      sums, gradient, at, wave_key, sequence.seqlen_k, factor,
      B::kMasked ? block.lane_again() : block.passer(), seen);
}

}  // namespace fa
