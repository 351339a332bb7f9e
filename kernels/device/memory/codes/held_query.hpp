// A wave's slice of Q beside codes (memory/codes.hpp). Its words stay in registers, so memory is read once
// for the power of two and the operands.
#pragma once

#include "device/memory/codes/coded_query.hpp"

namespace fa {

template <class Unit, DType kDType, int kSteps>
struct HeldQuery : QueryPower<kDType> {
  u32x4 words[kSteps];

  // `place(byte)`: where a byte of the slice is in the row.
  template <class Place>
  FA_DEVICE HeldQuery(const PackedView& view, int lane, const Place& place) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      words[i] =
          view.template read<u32x4>(Unit::column(lane, 0), place((i * Unit::kK + Unit::run_begin(lane)) * 2));
    }
  }

  // `join` makes all waves' largest of theirs.
  template <class Join>
  FA_DEVICE void fit_words(int lane, const Join& join) {
    if constexpr (kDType == DType::bf16) {
      typename QueryPower<kDType>::Largest largest;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) largest.add(words[i]);
      this->fit(join(largest.template of_wave<Unit::kWave>(lane)));
    }
  }

  FA_DEVICE u32x4 operand(int i) const { return this->converted(words[i]); }
};

}  // namespace fa
