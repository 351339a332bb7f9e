// A wave's slice of a tile whose rows of codes are both K and V (memory/codes.hpp): from global memory into
// registers, where each code is unpacked once, as an operand of S^T. V passes through the wave's own LDS in
// 16 bits, to lanes that have elements of head_dim in place of keys.
#pragma once

#include "device/memory/codes.hpp"
#include "device/memory/lds_tile.hpp"
#include "device/memory/own_codes.hpp"

namespace fa {

// The codes of V's elements. A lane has half of its key's: runs 2i and 2i + 1 are neighbours, as query_byte
// has Q's.
//
// In LDS, the first half of all rows comes before the second half, whose place is free while the parts of
// scores are in the first. Unit u of 16 bytes of a half of row r is at u ^ (r % 4 + r / 8 % 2 * 4), so eight
// lanes that write have different banks. A lane reads half a unit: four neighbouring elements of a key. Rows
// 2n and 2n + 1 of the second half change places: lanes that read both halves have different banks.
template <class Unit, int kKeys, int kValues>
struct OwnCodes {
  static constexpr int kLoads = kValues / 32, kSteps = kLoads * 2 + 1;  // of the contraction
  static constexpr int kStride = 128, kHalfBytes = kKeys * kStride, kLdsBytes = 2 * kHalfBytes;
  static_assert(Unit::kM == kKeys && Unit::kRun == 8 && Unit::kK == 16 && kValues == 128,
                "a lane has half of a key");

  u32x4 codes[kLoads];

  FA_DEVICE static int row_of(int thread) {
    return Unit::row_of_slot(Unit::a_row(thread % Unit::kWave), kKeys);
  }

  // `half`: 0 or 8.
  template <class Source>
  FA_DEVICE void load_codes(const Source& source, typename Source::Group group, int row, int slice,
                            int half) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      codes[i] = source.template read<u32x4>(group, row, slice * kValues + half * 2 + i * 32);
    }
  }

  FA_DEVICE void move_codes(OwnCodes& copy) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) copy.codes[i] = here(codes[i]);
  }

  // K as operands A of S^T.
  struct Operands {
    typename Unit::A of[kSteps];

    // Half `half` of V's elements.
    FA_DEVICE void store_values(LdsBytes tile, int lane, int half) const {
      const LdsBytes row = tile + half * kHalfBytes + (row_of(lane) ^ half) * kStride;
      const int place = lane % 8 ^ Unit::run_begin(lane) / 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int unit = i / 2 * 4 + i % 2;
        *reinterpret_cast<__attribute__((address_space(3))) u32x4*>(row + (unit ^ place) * 16) =
            of[half * 4 + i];
      }
    }
  };

  template <class Unpack>
  FA_DEVICE typename Unit::A operand(const Unpack& unpack, int i) const {
    return __builtin_bit_cast(typename Unit::A,
                              unpack(u32x2{codes[i / 2][i % 2 * 2], codes[i / 2][i % 2 * 2 + 1]}));
  }

  // V as operands A of O^T: four elements of each of a lane's keys, in the order of unpacked codes.
  struct Values {
    using Turned = OwnValues<Unit, kKeys, kValues, false>;
    static_assert(Turned::kWidth == 4, "half a unit");

    u32x2 key[Turned::kSteps][Unit::kRun];

    FA_DEVICE void load(LdsBytes tile, int lane) {
      const int half = Unit::a_row(lane) / 16, eight = Unit::run_begin(lane) / 8;  // of a step's keys
      const int place = Unit::a_row(lane) % 16 * 8 ^ eight * 64 ^ half * kStride;
      const LdsBytes first = tile + half * kHalfBytes + eight * (8 * kStride);
#pragma unroll
      for (int i = 0; i < Turned::kSteps; ++i) {
#pragma unroll
        for (int j = 0; j < Unit::kRun; ++j) {
          key[i][j] = *reinterpret_cast<__attribute__((address_space(3))) const u32x2*>(
              first + (place ^ (j % 4 * 16 + j % 2 * kStride)) + (i * 16 + j / 2 * 2) * kStride);
        }
      }
    }

    FA_DEVICE typename Turned::Operands operands() const {
      typename Turned::Operands v;
#pragma unroll
      for (int i = 0; i < Turned::kSteps; ++i) {
#pragma unroll
        for (int pair = 0; pair < Unit::kRun / 2; ++pair) {
          const u32x2 first = key[i][pair * 2], second = key[i][pair * 2 + 1];
#pragma unroll
          for (int word = 0; word < 2; ++word) {  // elements 0 and 2, then 1 and 3
            v.of[i][word][pair] = __builtin_amdgcn_perm(second[word], first[word], 0x05040100);
            v.of[i][word + 2][pair] = __builtin_amdgcn_perm(second[word], first[word], 0x07060302);
          }
        }
      }
      return v;
    }
  };
};

// As SliceStage: all elements are codes.
template <class Unit, int kKeys, int kValues, int kRest, int kSlices>
struct OwnSlice : OwnCodes<Unit, kKeys, kValues> {
  using Codes = OwnCodes<Unit, kKeys, kValues>;
  static_assert(kRest == Unit::kK, "one step of the contraction");

  u32x2 rest;
  KeyDescales<Unit, kKeys> descales;

  template <class Source>
  FA_DEVICE void load(const Source& source, typename Source::Group group, int thread) {
    const int lane = thread % Unit::kWave, slice = thread / Unit::kWave, row = Codes::row_of(thread);
    const int half = Unit::run_begin(lane);
    this->load_codes(source, group, row, slice, half);
    rest = source.template read<u32x2>(group, row, kSlices * kValues + slice * kRest + half);
  }

  // A copy of the codes in other registers, made before later loads.
  FA_DEVICE OwnSlice moved() const {
    OwnSlice copy;
    this->move_codes(copy);
    copy.rest = here(rest);
    return copy;
  }

  template <class Unpack>
  FA_DEVICE typename Unit::A operand(const Unpack& unpack, int i) const {
    if (i == Codes::kSteps - 1) return __builtin_bit_cast(typename Unit::A, unpack(rest));
    return Codes::operand(unpack, i);
  }
};

// Rows of kScaledRowBytes. The rest becomes operand A as it is.
template <class Unit, int kKeys, int kValues, int kRest, int kSlices>
struct OwnScaledSlice : OwnCodes<Unit, kKeys, kValues> {
  using Codes = OwnCodes<Unit, kKeys, kValues>;
  static constexpr int kScales = kSlices * kValues, kRests = kScales + kSlices * 4;  // bytes of a row
  static_assert(kRest == Unit::kK, "one step of the contraction");
  static_assert(kRests + kSlices * kRest * 2 == kScaledRowBytes, "see params.hpp");

  u32x4 rest;
  float scale;  // of the lane's key

  template <class Source>
  FA_DEVICE void load(const Source& source, typename Source::Group group, int thread) {
    const int lane = thread % Unit::kWave, slice = thread / Unit::kWave, row = Codes::row_of(thread);
    const int half = Unit::run_begin(lane);
    this->load_codes(source, group, row, slice, half);
    rest = source.template read<u32x4>(group, row, kRests + (slice * kRest + half) * 2);
    scale = source.template read<float>(group, row, kScales + slice * 4);
  }

  FA_DEVICE OwnScaledSlice moved() const {
    OwnScaledSlice copy;
    this->move_codes(copy);
    copy.rest = here(rest);
    copy.scale = here(scale);
    return copy;
  }
};

}  // namespace fa
