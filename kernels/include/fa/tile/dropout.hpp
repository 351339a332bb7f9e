// What dropout does to the probabilities of a tile, between their sum and their rounding: those whose word is
// below a bound become 0.  The others are scaled with the whole row, at the end.
#pragma once

#include "fa/arch/device.hpp"
#include "fa/tile/philox.hpp"

namespace fa {

struct Dropout {
  uint32_t below;  // 0: none
  PhiloxKey key;

  FA_DEVICE bool any() const { return below != 0; }

  // `first` is the tile's first key; `words(column, group)` are those of the lane's column at keys 4 * group
  // and the three after it.
  template <class Unit, int kKeys, class Words>
  FA_DEVICE void apply(typename Unit::C* p, int first, int lane, Words words) const {
    constexpr int kHeld = kKeys / Unit::kM * Unit::kRows;
    constexpr int kPart = kHeld < 4 ? kHeld : 4;  // of a group of 4 keys, those that one lane holds
    const int begin = first + Unit::held_begin(lane, kKeys);
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
#pragma unroll
      for (int f = 0; f < kHeld; f += kPart) {
        const int key = begin + Unit::held_step(f);
        const PhiloxWords found = words(c, key / 4);
#pragma unroll
        for (int i = 0; i < kPart; ++i) {
          typename Unit::C& step = p[(f + i) / Unit::kRows];
          const int element = (f + i) % Unit::kRows * Unit::kColumns + c;
          step[element] = word<kPart>(found, key, i) < below ? 0 : step[element];
        }
      }
    }
  }

 private:
  template <int kPart>
  FA_DEVICE static uint32_t word(const PhiloxWords& found, int key, int i) {
    static_assert(kPart == 4 || kPart == 2, "a lane holds a group of keys, or half of one");
    return kPart == 2 && key % 4 != 0 ? found.word[i + 2] : found.word[i];
  }
};

}  // namespace fa
