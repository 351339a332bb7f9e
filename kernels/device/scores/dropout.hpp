// Dropout of a tile's probabilities, after they are summed and before they are rounded. A probability becomes
// 0 if its random word is below a bound. The others are scaled with the whole row at the end.
#pragma once

#include "device/arch/current.hpp"
#include "device/arch/device.hpp"
#include "device/scores/philox.hpp"

namespace fa {

// Calls the generator one group after the other, as loops with a mask always do.
inline constexpr bool kDropsInTurn = traits(kCurrentGfx).short_code;

// One bit per probability of a lane: kept or dropped. The bits are computed before the scores, while the
// generator's registers are free.
template <class Unit, int kKeys>
struct Dropout {
  static constexpr int kHeld = kKeys / Unit::kM * Unit::kRows;  // keys of one column held by a lane
  static constexpr int kPart = kHeld < 4 ? kHeld : 4;           // of these, the keys of one group of 4
  static constexpr int kBits = kHeld * Unit::kColumns;
  static_assert(kBits <= 32, "the bits of a lane's probabilities fit into one register");
  static_assert(kPart == 4 || kPart == 2, "a lane holds a group of keys, or half of one");

  uint32_t below;  // 0: none
  PhiloxKey key;

  FA_DEVICE bool any() const { return below != 0; }

  // The bits of the tile with first key `first`. `words(column, group)` are the words of the lane's column at
  // keys 4 * group to 4 * group + 3.
  template <class Words>
  FA_DEVICE uint32_t kept(int first, int lane, Words words) const {
    if constexpr (kDropsInTurn) return kept_in_turn(first, lane, words);
    const int begin = first + Unit::held_begin(lane, kKeys);
    uint32_t bits = 0;
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
#pragma unroll
      for (int f = 0; f < kHeld; f += kPart) {
        const int key = begin + Unit::held_step(f);
        const PhiloxWords found = words(c, static_cast<unsigned>(key) / 4);
#pragma unroll
        for (int i = 0; i < kPart; ++i) bits = bits + bits + (word(found, key, i) >= below ? 1 : 0);
      }
    }
    return bits;
  }

  // As above, one group after the other: fewer instructions, slightly slower.
  template <class Words>
  FA_DEVICE uint32_t kept_in_turn(int first, int lane, Words words) const {
    const int begin = first + Unit::held_begin(lane, kKeys);
    uint32_t bits = 0;
#pragma clang loop unroll(disable)
    for (int c = 0; c < Unit::kColumns; ++c) {
#pragma clang loop unroll(disable)
      for (int f = 0; f < kHeld; f += kPart) {
        const int key = begin + Unit::held_step(f);
        const PhiloxWords found = words(c, static_cast<unsigned>(key) / 4);
#pragma unroll
        for (int i = 0; i < kPart; ++i) bits = bits + bits + (word(found, key, i) >= below ? 1 : 0);
      }
    }
    return bits;
  }

  // Whether element f of column c is kept.
  FA_DEVICE static bool is_kept(uint32_t bits, int c, int f) {
    return (bits << (32 - kBits + c * kHeld + f) & 0x80000000u) != 0;
  }

  FA_DEVICE static void apply(typename Unit::C* p, uint32_t bits) {
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
#pragma unroll
      for (int f = 0; f < kHeld; ++f) {
        typename Unit::C& step = p[f / Unit::kRows];
        const int element = f % Unit::kRows * Unit::kColumns + c;
        const float value = here(step[element]);  // outside of the bit_cast, which would take element 0
        const int all = static_cast<int>(bits << (32 - kBits + c * kHeld + f)) >> 31;
        step[element] = __builtin_bit_cast(float, __builtin_bit_cast(int, value) & all);
      }
    }
  }

 private:
  FA_DEVICE static uint32_t word(const PhiloxWords& found, int key, int i) {
    if constexpr (kPart == 4) {
      return found.word[i];
    } else {
      // Opaque: the compiler would index the words per lane, in scratch memory.
      const uint32_t low = here(found.word[i]), high = here(found.word[i + 2]);
      return (key & 2) != 0 ? high : low;
    }
  }
};

}  // namespace fa
