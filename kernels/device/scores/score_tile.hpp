// A tile of the gradients of scores in LDS, queries by keys of a workgroup, as operand A of dQ = dS * K.
// Lanes of the source are keys, so it is transposed on its way: blocks of four keys by four queries among
// four neighbouring lanes.
#pragma once

#include "device/arch/device.hpp"
#include "device/memory/lds_tile.hpp"
#include "device/memory/packed.hpp"
#include "device/memory/turned.hpp"

namespace fa {

// The tile's row of query `row`. Four queries, written at once by four lanes, are two rows apart, to avoid
// bank conflicts.
constexpr int score_row(int row) { return row / 8 * 8 + row % 4 * 2 + row / 4 % 2; }

template <class Unit, int kQueries, int kKeys, DType kDType, bool kPadded>
struct ScoreTile {
  // Of 16 writing lanes, eight are a unit further.
  using Tile = PlacedTile<Choice<Unit::kM == 16, Fragments<kQueries, kKeys * 2, 0, 16>,
                                 Swizzle<kQueries, kKeys * 2, Unit::kM, kPadded>>>;
  using P = Packed<Unit, kQueries, kDType>;
  static constexpr int kBytes = Tile::kBytes;
  static constexpr bool kTurned = false;  // orientation when read

  // For waves with keys from `wave` * kN on as columns.
  FA_DEVICE static void write(LdsBytes tile, int wave, int lane, const P& packed) {
    write_to(place(wave, lane), tile, lane, packed);
  }

  // In two parts: a lane's place, and the write.
  FA_DEVICE static int place(int wave, int lane) {
    static_assert(Unit::kColumns == 1 && P::kChunk == 8, "a lane has runs of 8 queries of one key");
    const int column = Unit::column(lane, 0);
    const int unit = (wave * Unit::kN + column) / 8, byte = column % 8 / 4 * 8;
    return Tile::offset(Unit::held_begin(lane, kQueries) + lane % 4 * 2, unit) + byte;
  }
  FA_DEVICE static void write_to(int first, LdsBytes tile, int lane, const P& packed) {
    const typename Tile::template Row<u32x2> place(tile, first);
#pragma unroll
    for (int chunk = 0; chunk < P::kChunks; ++chunk) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t low = packed.chunk[0][chunk][half * 2], high = packed.chunk[0][chunk][half * 2 + 1];
        place.write(Unit::held_step(chunk * 8) + half, transposed(low, high, lane));
      }
    }
  }

 private:
  // Turns four queries of a lane's key into four keys of query `lane % 4`.
  FA_DEVICE static u32x2 transposed(uint32_t low, uint32_t high, int lane) {
    constexpr int kNext = 0xb1, kSecondNext = 0x4e;  // DPP: quad_perm of lane ^ 1, and of lane ^ 2
    const uint32_t halves = lane % 2 == 0 ? 0x05040100 : 0x03020706;
    const uint32_t first = __builtin_amdgcn_perm(from<kNext>(low), low, halves);
    const uint32_t second = __builtin_amdgcn_perm(from<kNext>(high), high, halves);
    const uint32_t other_first = from<kSecondNext>(first), other_second = from<kSecondNext>(second);
    const bool upper = lane % 4 >= 2;
    return {upper ? other_second : first, upper ? second : other_first};
  }
  template <int kLane>
  FA_DEVICE static uint32_t from(uint32_t word) {
    return static_cast<uint32_t>(__builtin_amdgcn_mov_dpp(static_cast<int>(word), kLane, 0xf, 0xf, true));
  }
};

// As above, for LDS with transposed reads: stored keys by queries, as lanes hold them. Units are permuted so
// eight neighbouring keys, written at once, avoid bank conflicts. An operand has keys in the order of two
// reads: 4 of each 8 in one half of the wave, and the other 4 in the other half.
template <class Unit, int kQueries, int kKeys, DType kDType>
struct TurnedScoreTile {
  using P = Packed<Unit, kQueries, kDType>;
  static constexpr int kRowBytes = kQueries * 2, kBytes = kKeys * kRowBytes;
  static constexpr bool kTurned = true;
  static_assert(kRowBytes == 64 && Unit::kM == 32 && Unit::kN == 32 && Unit::kRun == 8, "four units");

  FA_DEVICE static int place(int wave, int lane) {
    return offset(wave * Unit::kN + Unit::column(lane, 0), Unit::held_begin(lane, kQueries) / 8);
  }
  FA_DEVICE static void write(LdsBytes tile, int wave, int lane, const P& packed) {
    write_to(place(wave, lane), tile, lane, packed);
  }
  FA_DEVICE static void write_to(int first, LdsBytes tile, int, const P& packed) {
    static_assert(P::kChunks == 2 && Unit::held_step(8) == 16, "the second unit is two further");
    using Words = __attribute__((address_space(3))) typename P::Words*;
    *(Words)(tile + first) = packed.chunk[0][0];
    *(Words)(tile + (first ^ 32)) = packed.chunk[0][1];
  }

  // Operands A of a run of keys from key `from` on.
  struct Reader {
    LdsBytes first;

    FA_DEVICE Reader(LdsBytes tile, int from, int lane)
        : first(tile + from * kRowBytes + offset(turned_row(lane), turned_byte(lane) / 16) +
                turned_byte(lane) % 16) {}
    FA_DEVICE typename Unit::A read(int i) const {
      typename Unit::A a;
      a.lo = read_turned(first + i * (Unit::kK * kRowBytes));
      a.hi = read_turned(first + i * (Unit::kK * kRowBytes) + 8 * kRowBytes);
      return a;
    }
  };

 private:
  static constexpr int offset(int row, int unit) { return row * kRowBytes + (unit ^ row / 2 % 4) * 16; }
};

template <Gfx kGfx, class Unit, int kQueries, int kKeys, DType kDType, bool kPadded>
using ScoresOf = Choice<traits(kGfx).transposed_reads, TurnedScoreTile<Unit, kQueries, kKeys, kDType>,
                        ScoreTile<Unit, kQueries, kKeys, kDType, kPadded>>;

}  // namespace fa
