// A wave's slice of a tile whose rows of codes are both K and V (memory/codes.hpp), through the wave's own
// LDS: each code is unpacked once, on its way there. Rows of 16 bits are operands A of S^T. V needs no copy:
// a lane reads neighbouring elements of each of its keys.
#pragma once

#include "device/memory/codes.hpp"
#include "device/memory/lds_tile.hpp"
#include "device/memory/own_codes.hpp"

namespace fa {

// Rows an odd number of units apart, so eight successive rows begin in different banks. The other eight are
// four units further: lanes that write rows 8 apart have different banks, too.
template <int kRowBytes>
struct ShiftedRows {
  static constexpr int kUnits = kRowBytes / 16, kStride = (kUnits | 1) * 16, kShift = 64;
  static constexpr bool kPermuted = false;
  static constexpr int kPeriodBytes = 16 * kStride + kShift, kBytes = kPeriodBytes;

  static constexpr int offset(int row, int unit) { return row * kStride + row / 8 * kShift + unit * 16; }
};

// As SliceStage: a lane loads 16 codes of each of four keys, and eight of the rest of one key.
template <class Unit, int kKeys, int kValues, int kRest, int kSlices>
struct StagedSlice {
  using Tile = PlacedTile<ShiftedRows<(kValues + kRest) * 2>>;
  static constexpr int kBlocks = kKeys / 4, kLanes = Unit::kWave / kBlocks;  // with the same keys
  static_assert(Unit::kM == 16 && kKeys == 16 && kValues == kLanes * 16 && kLanes == kRest / 2,
                "every lane moves as much");

  u32x4 codes[4];  // of the keys of a block
  u32x2 rest;      // of one key
  KeyDescales<Unit, kKeys> descales;

  // The first of a thread's rows. All of them are in one group.
  FA_DEVICE static int row_of(int thread) { return thread % Unit::kWave % kBlocks * 4; }

  template <class Source>
  FA_DEVICE void load(const Source& source, typename Source::Group group, int thread) {
    const int lane = thread % Unit::kWave, slice = thread / Unit::kWave, row = row_of(thread);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      codes[j] = source.template read<u32x4>(group, row + j, slice * kValues + lane_of(lane) * 16);
    }
    rest = source.template read<u32x2>(group, row + lane_of(lane) % 4,
                                       kSlices * kValues + slice * kRest + lane_of(lane) / 4 * 8);
  }

  template <class How>
  FA_DEVICE void store(LdsBytes tile, const How& how, int lane) const {
    u32x4 runs[8], of_rest;
    how.unpacking([&](const auto& unpack) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        runs[i] = unpack(u32x2{codes[i / 2][i % 2 * 2], codes[i / 2][i % 2 * 2 + 1]});
      of_rest = unpack(rest);
    });
    const int row = row_of(lane), unit = lane_of(lane) * 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      Tile::write(tile, Unit::slot_of_row(row + i / 2, kKeys), unit + i % 2, 0, runs[i]);
    }
    const int of = lane_of(lane);
    Tile::write(tile, Unit::slot_of_row(row + of % 4, kKeys), kValues / 8 + of / 4, 0, of_rest);
  }

  // V as operands A of O^T: four elements of each of a lane's keys, in the order of unpacked codes. So row r
  // of step s of O^T is element r * 4 + s % 4 of 64.
  struct Values {
    static constexpr int kWidth = 4, kParts = kValues / (kWidth * Unit::kM);
    static_assert(kKeys == Unit::kK, "a step of keys");

    LdsBytes at;

    FA_DEVICE Values(LdsBytes tile, int lane)
        : at(tile + Tile::offset(Unit::slot_of_row(Unit::run_begin(lane), kKeys), 0) +
             Unit::a_row(lane) * 8) {}

    template <class P>
    FA_DEVICE void multiply(typename Unit::C* o, const P& p) const {
      const typename Unit::B b = p.operand(0);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        __builtin_amdgcn_sched_barrier(0);
        u32x2 key[Unit::kRun];
#pragma unroll
        for (int j = 0; j < Unit::kRun; ++j) {
          key[j] = *reinterpret_cast<__attribute__((address_space(3))) const u32x2*>(
              at + Tile::offset(Unit::slot_of_row(j, kKeys), part * 8));
        }
#pragma unroll
        for (int e = 0; e < kWidth; ++e) {
          typename Unit::A a;
#pragma unroll
          for (int pair = 0; pair < Unit::kRun / 2; ++pair) {
            a[pair] = __builtin_amdgcn_perm(key[pair * 2 + 1][e % 2], key[pair * 2][e % 2],
                                            e / 2 == 0 ? 0x05040100 : 0x07060302);
          }
          Unit::multiply(o[part * kWidth + e], a, b);
          __builtin_amdgcn_sched_barrier(0);
        }
      }
    }
  };

 private:
  // Number among the lanes with the same keys.
  FA_DEVICE static int lane_of(int lane) { return lane / kBlocks; }
};

}  // namespace fa
