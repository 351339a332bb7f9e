// A wave's slice of a tile whose rows of codes are both K and V (memory/codes.hpp): from global memory into
// registers, where its part of K is unpacked. V's codes pass through the wave's own LDS, to lanes that have
// elements of head_dim in place of keys.
#pragma once

#include "device/memory/codes.hpp"
#include "device/memory/lds_tile.hpp"
#include "device/memory/own_codes.hpp"

namespace fa {

// As SliceStage. A lane has half of its key's codes: runs 2i and 2i + 1 are neighbours, as SlicedRows has
// Q's.
template <class Unit, int kKeys, int kValues, int kRest, int kSlices>
struct OwnSlice {
  using Values = OwnValues<Unit, kKeys, kValues>;
  static constexpr int kLoads = kValues / 32, kSteps = kLoads * 2 + 1;  // of the contraction
  static constexpr int kStride = kValues + 16;  // bytes of a row in LDS: eight rows are in different banks
  static constexpr int kLdsBytes = kKeys * kStride;
  static_assert(Unit::kM == kKeys && Unit::kRun == 8 && Unit::kK == 16 && kRest == 16,
                "a lane has half of a key");

  u32x4 codes[kLoads];
  u32x2 rest;
  KeyDescales<Unit, kKeys> descales;

  FA_DEVICE static int row_of(int thread) {
    return Unit::row_of_slot(Unit::a_row(thread % Unit::kWave), kKeys);
  }

  template <class Source>
  FA_DEVICE void load(const Source& source, typename Source::Group group, int thread) {
    const int lane = thread % Unit::kWave, slice = thread / Unit::kWave, row = row_of(thread);
    const int half = Unit::run_begin(lane);  // 0 or 8
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      codes[i] = source.template read<u32x4>(group, row, slice * kValues + half * 2 + i * 32);
    }
    rest = source.template read<u32x2>(group, row, kSlices * kValues + slice * kRest + half);
  }

  // A copy in other registers, made before later loads.
  FA_DEVICE OwnSlice moved() const {
    OwnSlice copy;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) copy.codes[i] = here(codes[i]);
    copy.rest = here(rest);
    copy.descales = descales.now();
    return copy;
  }

  // Operand A of step i of S^T.
  template <class Unpack>
  FA_DEVICE typename Unit::A key_operand(const Unpack& unpack, int i) const {
    const u32x2 run = i == kSteps - 1 ? rest : u32x2{codes[i / 2][i % 2 * 2], codes[i / 2][i % 2 * 2 + 1]};
    return __builtin_bit_cast(typename Unit::A, unpack(run));
  }

  FA_DEVICE void store_values(LdsBytes tile, int lane) const {
    const LdsBytes row = tile + row_of(lane) * kStride + Unit::run_begin(lane) * 2;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      *reinterpret_cast<__attribute__((address_space(3))) u32x4*>(row + i * 32) = codes[i];
    }
  }

  // Rows of V's codes in LDS, as a source of Values.
  struct Stored {
    struct Group {};
    LdsBytes tile;

    FA_DEVICE Group group(int) const { return {}; }
    template <class T>
    FA_DEVICE T read(Group, int row, int byte) const {
      return *reinterpret_cast<__attribute__((address_space(3))) const T*>(tile + row * kStride + byte);
    }
  };
};

}  // namespace fa
