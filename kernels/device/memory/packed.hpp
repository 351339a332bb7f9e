// A lane's elements of a result, rounded to 16 bits, and operand B made from them for the next product. If a
// lane's result already is the operand, it stays in registers. Otherwise it passes once through the wave's
// own part of LDS.
#pragma once

#include "device/memory/lds_tile.hpp"
#include "device/mma/unit.hpp"

namespace fa {

// For a result with kRows rows.
template <class Unit, int kRows, DType kDType>
struct Packed {
  static constexpr int kColumns = Unit::kColumns;
  static constexpr int kHeld = kRows / Unit::kM * Unit::kRows;  // rows of one column held by a lane
  static constexpr int kChunk = kHeld < 8 ? kHeld : 8;          // consecutive ones of these
  static constexpr int kChunks = kHeld / kChunk;
  typedef uint32_t Words __attribute__((ext_vector_type(kChunk / 2)));

  Words chunk[kColumns][kChunks];

  // `element(c, f)` is element f of column c. It is truncated (see kCutGain), or with kProducts in fp16
  // rounded: then values above the range become infinite.
  template <bool kProducts = false, class Element>
  FA_DEVICE static Packed of(const Element& element) {
    Packed packed;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int f = 0; f < kHeld; f += 2) {
        const auto packs = kProducts ? pack_products : cut<kDType>;
        packed.chunk[c][f / kChunk][f % kChunk / 2] = packs(element(c, f), element(c, f + 1));
      }
    }
    return packed;
  }

  // Its elements times pairs from `pair(c, f)`, for elements f and f + 1, rounded.
  template <class Pair>
  FA_DEVICE Packed times_pairs(const Pair& pair) const {
    Packed product;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int f = 0; f < kHeld; f += 2) {
        const f32x2 others = pair(c, f);
        const uint32_t own = chunk[c][f / kChunk][f % kChunk / 2];
        const f16x2 both = __builtin_bit_cast(f16x2, own);
        const float low = __builtin_fmaf(static_cast<float>(both.x), others[0], 0);
        const float high = __builtin_fmaf(static_cast<float>(both.y), others[1], 0);
        product.chunk[c][f / kChunk][f % kChunk / 2] = pack_products(low, high);
      }
    }
    return product;
  }

  FA_DEVICE float element(int c, int f) const {
    const uint32_t word =
        chunk[c][f / kChunk][f % kChunk / 2];  // a scalar: bit casts of vector elements read the wrong one
    if constexpr (kDType == DType::fp16) {
      const f16x2 pair = __builtin_bit_cast(f16x2, word);
      return static_cast<float>(f % 2 == 0 ? pair.x : pair.y);
    } else {
      return __builtin_bit_cast(float, f % 2 == 0 ? word << 16 : word & 0xffff0000u);
    }
  }

  // Negates the elements of column c whose bits are set. All must be non-negative before.
  FA_DEVICE void negate(int c, uint32_t bits) {
    static_assert(kHeld <= 16, "even ones and odd ones have half a word each");
    const uint32_t apart = (bits & 0x5555u) | (bits & 0xaaaau) << 15;
#pragma unroll
    for (int f = 0; f < kHeld; f += 2) {
      const uint32_t word = chunk[c][f / kChunk][f % kChunk / 2];
      chunk[c][f / kChunk][f % kChunk / 2] = here(word | (apart << (15 - f) & 0x80008000u));
    }
  }
  // A copy with 0 for negative elements.
  FA_DEVICE Packed without_negative() const {
    typedef int16_t Pair __attribute__((ext_vector_type(2)));
    Packed found;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int f = 0; f < kHeld; f += 2) {
        const uint32_t word = chunk[c][f / kChunk][f % kChunk / 2];
        const Pair both = __builtin_elementwise_max(__builtin_bit_cast(Pair, word), Pair(0));
        found.chunk[c][f / kChunk][f % kChunk / 2] = __builtin_bit_cast(uint32_t, both);
      }
    }
    return found;
  }
  // All ones if the element is negative, else 0.
  FA_DEVICE uint32_t negative(int c, int f) const {
    const uint32_t word = chunk[c][f / kChunk][f % kChunk / 2];
    return static_cast<uint32_t>(static_cast<int>(f % 2 == 0 ? word << 16 : word) >> 31);
  }

  // element(c, f) * x. A fused multiply-add takes an fp16 element directly.
  FA_DEVICE float times(int c, int f, float x) const {
    if constexpr (kDType == DType::fp16) return __builtin_fmaf(element(c, f), x, 0);
    return element(c, f) * x;
  }
};

// Passes a lane's elements to the same lane of another wave.
template <class Unit, int kRows, DType kDType>
struct LaneExchange {
  using P = Packed<Unit, kRows, kDType>;
  static constexpr int kBytes = P::kColumns * P::kChunks * Unit::kWave * sizeof(typename P::Words);

  FA_DEVICE static void write(LdsBytes area, int lane, const P& packed) {
    each([&](int c, int chunk) { *place(area, lane, c, chunk) = packed.chunk[c][chunk]; });
  }
  FA_DEVICE static P read(LdsBytes area, int lane) {
    P packed;
    each([&](int c, int chunk) { packed.chunk[c][chunk] = *place(area, lane, c, chunk); });
    return packed;
  }

 private:
  using Word = __attribute__((address_space(3))) typename P::Words;

  FA_DEVICE static Word* place(LdsBytes area, int lane, int c, int chunk) {
    return (Word*)area + (c * P::kChunks + chunk) * Unit::kWave + lane;
  }
  template <class Action>
  FA_DEVICE static void each(const Action& action) {
#pragma unroll
    for (int c = 0; c < P::kColumns; ++c) {
#pragma unroll
      for (int chunk = 0; chunk < P::kChunks; ++chunk) action(c, chunk);
    }
  }
};

// kFragments: elements are in LDS in the order of reads (one column per lane).
template <class Unit, int kRows, DType kDType, bool kPadded, bool kFragments,
          bool kChainsInRegisters = Unit::kChainsInRegisters>
struct PackedOperand;

template <class Unit, int kRows, DType kDType, bool kPadded, bool kFragments>
struct PackedOperand<Unit, kRows, kDType, kPadded, kFragments, true> {
  using P = Packed<Unit, kRows, kDType>;
  static constexpr int kLdsBytes = 0;
  static constexpr int kSteps = kRows / Unit::kK;
  static_assert(P::kChunk == Unit::kRun && P::kChunks == kSteps, "a chunk is a step's operand");

  P packed;

  PackedOperand() = default;
  FA_DEVICE PackedOperand(LdsBytes, int, const P& packed) : packed(packed) {}
  FA_DEVICE typename Unit::B operand(int i) const { return {{packed.chunk[0][i]}}; }
};

template <class Unit, int kRows, DType kDType, bool kPadded, bool kFragments>
struct PackedOperand<Unit, kRows, kDType, kPadded, kFragments, false> {
  using P = Packed<Unit, kRows, kDType>;
  using Tile =
      Choice<kFragments, PlacedTile<Fragments<Unit::kN, kRows * 2>>, ColumnTile<Unit, kRows * 2, kPadded>>;
  static constexpr int kLdsBytes = Tile::kBytes;
  static constexpr int kSteps = kRows / Unit::kK;

  LdsBytes tile;
  int lane;

  PackedOperand() = default;
  FA_DEVICE PackedOperand(LdsBytes tile, int lane, const P& packed) : tile(tile), lane(lane) {
    wave_barrier();
    write(tile, lane, packed);
    wave_barrier();
  }

  // Reads what another wave wrote before a barrier: the same lane's elements.
  FA_DEVICE PackedOperand(LdsBytes tile, int lane) : tile(tile), lane(lane) {}
  FA_DEVICE static void write(LdsBytes tile, int lane, const P& packed) {
#pragma unroll
    for (int c = 0; c < P::kColumns; ++c) {
#pragma unroll
      for (int chunk = 0; chunk < P::kChunks; ++chunk) {
        const int row = held_row(lane, chunk);
        Tile::write(tile, Unit::column(lane, c), row / 8, row % 8 * 2, packed.chunk[c][chunk]);
      }
    }
  }
  FA_DEVICE static P read(LdsBytes tile, int lane) {
    static_assert(P::kChunk == 8, "a chunk is a unit");
    P packed;
#pragma unroll
    for (int c = 0; c < P::kColumns; ++c) {
#pragma unroll
      for (int chunk = 0; chunk < P::kChunks; ++chunk) {
        packed.chunk[c][chunk] =
            Tile::template read<u32x4>(tile, Unit::column(lane, c), held_row(lane, chunk) / 8);
      }
    }
    return packed;
  }

  FA_DEVICE typename Unit::B operand(int i) const {
    return read_columns<Unit, Tile>(tile, lane, (i * Unit::kK + Unit::run_begin(lane)) / 8);
  }

 private:
  FA_DEVICE static int held_row(int lane, int chunk) {
    return Unit::held_begin(lane, kRows) + Unit::held_step(chunk * P::kChunk);
  }
};

}  // namespace fa
