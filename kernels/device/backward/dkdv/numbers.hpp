// A tile's numbers per query, in LDS: the start values of each role's first product. In the featured loop
// both products need both: lse and delta.
#pragma once

#include "device/backward/parts/block.hpp"
#include "device/backward/parts/raised.hpp"
#include "device/backward/parts/scoring.hpp"

namespace fa {

// Each wave reads its own into registers (dkdv/moves.hpp).
struct OwnNumbers {
  static constexpr bool kByWave = true;
  static constexpr int kBytes = 0;
};

template <class B>
FA_DEVICE float shift_of(float lse) {
  return Scoring::shift(B::kMasked ? Scoring::masked_lse(lse) : lse, RaisedOf<B>::kLogP);
}

// One wave moves a tile's lse and another its delta, a number per lane.
template <class Shape>
struct LaneNumbers {
  static constexpr bool kByWave = false;
  static constexpr int kNumbers = Shape::Unit::kWave, kSets = 1, kSetBytes = 2 * kNumbers * sizeof(float);
  static constexpr int kBytes = kSetBytes;
  static_assert(Shape::kQueries <= kNumbers, "a number per lane");

  template <class B>
  FA_DEVICE static float load(const B& block, const QuerySource& from, int first, float last) {
    if (block.wave > 1) return last;  // in the same register: another one would wait for the load into it
    const float* const numbers = block.wave == 0 ? from.lse : from.delta;
    const HeadRows rows{reinterpret_cast<const char*>(numbers), sizeof(float), block.sequence.seqlen_q};
    return BufferView<kNumbers, sizeof(float), B::kTraits.buffer_word3>(rows, first)
        .template read<float>(block.lane, 0);
  }
  template <class B>
  FA_DEVICE static void store(const B& block, float value, int) {
    if (block.wave > 1) return;
    value = block.wave == 0 ? shift_of<B>(value) * -__builtin_amdgcn_rcpf(block.factor)
                            : block.dropout.minus_delta(value);
    ((typename B::Floats)(block.lds + B::kNumbersAt))[block.thread] = value;
  }
};

// A thread moves each number. kHeld: there are two sets if they come early.
template <class Shape, int kHeld>
struct ThreadNumbers {
  static constexpr bool kByWave = false;
  static constexpr int kNumbers = Shape::kQueries, kSets = kHeld, kSetBytes = 2 * kNumbers * sizeof(float);
  static constexpr int kBytes = kSets * kSetBytes;

  // Whether a thread has a number of the tile.
  template <class B>
  FA_DEVICE static bool has(const B& block) {
    static_assert(2 * kNumbers % B::Unit::kWave == 0, "all threads of a wave, or none");
    return (B::kConfig.early_rows ? uniform(block.thread) : block.thread) < 2 * kNumbers;
  }
  template <class B>
  FA_DEVICE static float load(const B& block, const QuerySource& from, int first, float) {
    const int row = first + block.thread % kNumbers;
    if (!has(block) || row >= block.sequence.seqlen_q) return 0;
    return (block.thread < kNumbers ? from.lse : from.delta)[row];
  }
  template <class B>
  FA_DEVICE static void store(const B& block, float value, int set) {
    if (!has(block)) return;
    if (block.thread < kNumbers) {
      value = shift_of<B>(value);
      if (!B::kFeatured) value *= -__builtin_amdgcn_rcpf(block.factor);
    } else {
      value = B::kFeatured ? RaisedOf<B>::raise(value) : block.dropout.minus_delta(value);
    }
    ((typename B::Floats)(block.lds + B::kNumbersAt + set * kSetBytes))[block.thread] = value;
  }
};

}  // namespace fa
