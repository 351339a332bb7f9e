// What a wave's first product of a tile begins with, and which of its results are hidden.
#pragma once

#include "fa/kernel/backward_dkdv_block.hpp"

namespace fa {

// `own_term`: first_term of the lane's own number, where there are such.
template <class B>
FA_DEVICE void begin(const B& block, typename B::Result& result, float own_term = 0,
                     const typename B::Unit::C& zeros = {}) {
  using Unit = typename B::Unit;
  if constexpr (B::kOwnNumbers) {
    result[0] = Unit::spread_rows(own_term, block.passer(), B::kKeepsZeros ? zeros : Unit::zero());
  } else if constexpr (B::kFeatured) {
#pragma unroll
    for (int step = 0; step < B::kSteps; ++step) {
      result[step] = typename Unit::C{};
      Unit::settle(result[step]);
    }
  } else if constexpr (Unit::kSpreadsRows) {
#pragma unroll
    for (int step = 0; step < B::kSteps; ++step) {
      const int row = Unit::slot_of_row(step * Unit::kM + Unit::a_row(block.lane), B::kQueries);
      static_assert(Unit::slot_of_row(Unit::slot_of_row(4, B::kQueries), B::kQueries) == 4,
                    "its own inverse");
      result[step] = Unit::spread_rows(block.numbers()[row], block.lane);
    }
  } else {
#pragma unroll
    for (int c = 0; c < B::kColumns; ++c) {
#pragma unroll
      for (int f = 0; f < B::P::kHeld; ++f) element<Unit>(result, c, f) = block.number(f);
    }
  }
}

// Hides from each key the queries that do not see it.
template <class B>
FA_DEVICE void mask(const B& block, typename B::Result& result, int first, int wave_key) {
  using Unit = typename B::Unit;
  int begin[B::kColumns], end[B::kColumns];
  Visibility visible = block.visible;
  if constexpr (B::kWithDq) {
    // Opaque: few tiles are masked, and what follows from these would be kept in registers through all.
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

}  // namespace fa
