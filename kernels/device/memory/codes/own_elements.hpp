// K and V of 16 bits from global memory into registers of the wave that multiplies them, as codes of 8 bits
// (memory/own_codes.hpp). The only lane that has an element converts it.
#pragma once

#include "device/memory/codes/own_rows.hpp"
#include "device/memory/own_codes.hpp"

namespace fa {

// K as operands A of S^T: a lane has its rows.
template <class Unit, int kKeys, int kHeadDim>
struct OwnElementKeys {
  struct Tile {
    static constexpr int kBytes = 0;  // of LDS
  };
  static constexpr int kSteps = kKeys / Unit::kM, kLoads = kHeadDim / Unit::kK;
  static_assert(kLone<Unit> && Unit::kRun == 8, "a load is a run");

  u32x4 run[kSteps][kLoads];

  template <class Source>
  FA_DEVICE void load(const Source& source, int thread) {
    const int lane = static_cast<unsigned>(thread) % Unit::kWave;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int row = here(Unit::row_of_slot(step * Unit::kM + Unit::a_row(lane), kKeys));
      const typename Source::Group group = source.group(row);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) run[step][i] = source.template read<u32x4>(group, row, i * 16);
    }
  }

  // S^T += K * Q^T.
  template <class Convert, class Query>
  FA_DEVICE void multiply(Convert& convert, typename Unit::C* s, const Query& query) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const typename Unit::B q = query.operand(i);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const u32x4 words = convert(here(run[step][i]));
        if (i == 0) {
          Unit::multiply_first(s[step], words, q);
        } else {
          Unit::multiply(s[step], words, q);
        }
        Unit::pin(s[step]);  // or operands stay for later products
        convert.pin();
      }
    }
  }
};

// V as operands A of O^T. A lane loads 8 neighbouring elements of each of its keys: row r of step s of O^T is
// element r * 8 + s of head_dim.
template <class UnitOfKeys, int kKeys, int kHeadDim>
struct OwnElementValues {
  using Unit = ValuesOf<UnitOfKeys>;
  struct Tile {
    static constexpr int kBytes = 0;
  };
  static constexpr int kSteps = kKeys / Unit::kK, kWidth = kHeadDim / Unit::kM;
  static_assert(kWidth == 8, "one load a key");

  u32x4 key[kSteps][Unit::kRun];

  template <class Source>
  FA_DEVICE void load(const Source& source, int thread) {
    const int lane = static_cast<unsigned>(thread) % Unit::kWave;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int row = here(i * Unit::kK + Unit::run_begin(lane));
      const typename Source::Group group = source.group(row);
#pragma unroll
      for (int j = 0; j < Unit::kRun; ++j) {
        key[i][j] = source.template read<u32x4>(group, row + j, Unit::a_row(lane) * 16);
      }
    }
  }

  // O^T += V^T * P^T, two elements at a time.
  template <class Convert, class P>
  FA_DEVICE void multiply(Convert& convert, typename Unit::C* o, const P& p) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const typename Unit::B b = p.template operand_of<Unit>(i);
#pragma unroll
      for (int word = 0; word < kWidth / 2; ++word) {
        typename Unit::A first, second;
#pragma unroll
        for (int pair = 0; pair < Unit::kRun / 2; ++pair) {
          const u32x2 keys = convert(
              u32x2{here(uint32_t{key[i][pair * 2][word]}), here(uint32_t{key[i][pair * 2 + 1][word]})});
          first[pair] = __builtin_amdgcn_perm(keys[1], keys[0], 0x05040100);
          second[pair] = __builtin_amdgcn_perm(keys[1], keys[0], 0x07060302);
        }
        Unit::multiply(o[word * 2], first, b);
        Unit::multiply(o[word * 2 + 1], second, b);
        Unit::pin(o[word * 2]), Unit::pin(o[word * 2 + 1]);  // or operands stay for later products
        convert.pin();
      }
    }
  }
};

// Keys and values of a wave, codes or elements. kPlain: with registers for places.
template <class Unit, int kKeys, int kHeadDim, bool kCoded, bool kPlain>
using OwnKeysOf = Choice<kCoded, OwnKeys<Unit, kKeys, kHeadDim, kLone<Unit> && kPlain>,
                         OwnElementKeys<Unit, kKeys, kHeadDim>>;
template <class Unit, int kKeys, int kHeadDim, bool kCoded, bool kPlain>
using OwnValuesOf = Choice<kCoded, OwnValues<Unit, kKeys, kHeadDim, kLone<Unit> && kPlain>,
                           OwnElementValues<Unit, kKeys, kHeadDim>>;

}  // namespace fa
