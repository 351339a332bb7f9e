// Dropout where a lane's columns are keys and its rows are queries: the same bits as scores/dropout.hpp,
// where it is the other way round.
#pragma once

#include "device/arch/device.hpp"
#include "device/scores/dropout.hpp"

namespace fa {

// Bit f * kColumns + c says whether element f of column c is kept.
template <class Unit, int kRows>
struct ColumnDropout {
  static constexpr int kHeld = kRows / Unit::kM * Unit::kRows;  // rows of one column that a lane holds
  static constexpr int kColumns = Unit::kColumns;
  static_assert(kHeld * kColumns <= 32, "the bits of a lane's probabilities fit into one register");
  static_assert(kColumns == 4 || (kColumns == 1 && kHeld % 4 == 0),
                "the generator gives four keys at a time");

  FA_DEVICE static float zero_dropped(float value, uint32_t bits, int c, int f) {
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, value) & all(bits, c, f));
  }
  FA_DEVICE static float negate_dropped(float value, uint32_t bits, int c, int f) {
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, value) ^ (~all(bits, c, f) & 0x80000000u));
  }

  // Makes elements negative that are dropped; none is so far.
  template <class Packed>
  FA_DEVICE static void negate_dropped(Packed& packed, uint32_t bits) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      uint32_t own = bits;
      if constexpr (kColumns > 1) {
        own = 0;
#pragma unroll
        for (int f = 0; f < kHeld; ++f) own |= (bits >> (f * kColumns + c) & 1u) << f;
      }
      packed.negate(c, ~own);
    }
  }

  // `words(row)` are those of the lane's group of 4 keys; the tile begins at row `first`.
  template <class Words>
  FA_DEVICE static uint32_t bits(int first, int lane, uint32_t below, const Words& words) {
    if constexpr (kDropsInTurn) return bits_in_turn(first, lane, below, words);
    const int begin = first + Unit::held_begin(lane, kRows);
    uint32_t found = 0;
    if constexpr (kColumns == 4) {
#pragma unroll
      for (int f = 0; f < kHeld; ++f) found |= four(words(begin + Unit::held_step(f)), below) << f * 4;
      return found;
    } else {
      // Four neighbours have the four keys of a group.  Each generates the words of every fourth row, and
      // gives the others their bits.
#pragma unroll
      for (int f = 0; f < kHeld; f += 4) {
        found |= four(words(begin + Unit::held_step(f) + lane % 4), below) << f;
      }
      return of_neighbours(found, lane);
    }
  }

  // The same, one call of the generator after the other: fewer instructions, and a little more time.
  template <class Words>
  FA_DEVICE static uint32_t bits_in_turn(int first, int lane, uint32_t below, const Words& words) {
    constexpr bool kShared = kColumns == 1;  // by four neighbours, as above
    const int begin = first + Unit::held_begin(lane, kRows) + (kShared ? lane % 4 : 0);
    uint32_t found = 0;
#pragma clang loop unroll(disable)
    for (int f = 0; f < kHeld; f += kShared ? 4 : 1) {
      found |= four(words(begin + Unit::held_step(f)), below) << (kShared ? f : f * 4);
    }
    return kShared ? of_neighbours(found, lane) : found;
  }

 private:
  FA_DEVICE static uint32_t of_neighbours(uint32_t found, int lane) {
    return given<0>(found, lane) | given<1>(found, lane) | given<2>(found, lane) | given<3>(found, lane);
  }

  // Every bit set where the element is kept, else none.
  FA_DEVICE static uint32_t all(uint32_t bits, int c, int f) {
    return static_cast<uint32_t>(static_cast<int>(bits << (31 - (f * kColumns + c))) >> 31);
  }

  FA_DEVICE static uint32_t four(const PhiloxWords& words, uint32_t below) {
    uint32_t bits = 0;
#pragma unroll
    for (int key = 0; key < 4; ++key) bits |= (words.word[key] >= below ? 1u : 0u) << key;
    return bits;
  }

  // Bits of this lane's key that neighbour kNeighbour of the four found.
  template <int kNeighbour>
  FA_DEVICE static uint32_t given(uint32_t found, int lane) {
    constexpr int kEveryLane = kNeighbour * 0x55;  // DPP: quad_perm of one lane
    const uint32_t theirs = __builtin_amdgcn_mov_dpp(static_cast<int>(found), kEveryLane, 0xf, 0xf, true);
    return (theirs >> lane % 4 & 0x11111111u) << kNeighbour;
  }
};

}  // namespace fa
