// A wave's slice of Q beside codes (memory/codes.hpp), through a tile in LDS: loops convert it there, a step
// at a time, in place of code for each step. Memory is read once, for the power of two and the operands.
#pragma once

#include "device/memory/codes/coded_query.hpp"
#include "device/memory/lds_tile.hpp"

namespace fa {

// The lanes of a column have equal parts of each step.
template <class Unit, DType kDType, int kSteps, class Tile>
struct StagedQuery : QueryPower<kDType> {
  LdsBytes tile;
  int row, part;

  // `place(byte)`: where a byte of the slice is in the row.
  template <class Place>
  FA_DEVICE StagedQuery(LdsBytes tile, const PackedView& view, int lane, const Place& place)
      : tile(tile), row(Unit::column(lane, 0)), part(lane / Unit::kN) {
    static_assert(Unit::kWave / Unit::kN * 8 == Unit::kK, "a lane has 16 bytes of a step");
    u32x4 words[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      words[i] = view.template read<u32x4>(row, place((i * Unit::kK + part * 8) * 2));
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) write(i, words[i]);
    wave_barrier();
  }

  // `join` makes all waves' largest of theirs.
  template <class Join>
  FA_DEVICE void fit_words(int lane, const Join& join) {
    if constexpr (kDType == DType::bf16) {
      typename QueryPower<kDType>::Largest largest;
#pragma unroll 1
      for (int i = 0; i < kSteps; ++i) largest.add(read(i));
      this->fit(join(largest.template of_wave<Unit::kWave>(lane)));
    }
  }

  template <class Query, class Sign>
  FA_DEVICE Query operands(const Sign& sign) const {
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) write(i, sign.apply(this->converted(read(i))));
    wave_barrier();
    Query query;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int unit = (i * Unit::kK + Unit::run_begin(part * Unit::kN)) / 8;
      query.held.step[i].column[0] = Tile::template read<typename Unit::A>(tile, row, unit);
    }
    return query;
  }

 private:
  FA_DEVICE u32x4 read(int i) const { return Tile::template read<u32x4>(tile, row, i * 2 + part); }
  FA_DEVICE void write(int i, u32x4 words) const { Tile::write(tile, row, i * 2 + part, 0, words); }
};

}  // namespace fa
