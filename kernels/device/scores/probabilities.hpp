// P^T, rounded to the dtype, as operand B of O^T += V^T * P^T. If a lane's scores already are the operand, it
// stays in registers. Otherwise it passes once through the wave's own part of LDS.
#pragma once

#include "device/memory/lds_tile.hpp"
#include "device/mma/unit.hpp"

namespace fa {

// kKept: a lane's addresses stay in registers through the loop instead of being computed for each tile.
// Padded tiles only.
template <class Unit, int kKeys, DType kDType, bool kPadded, bool kKept,
          bool kChainsInRegisters = Unit::kChainsInRegisters>
struct Probabilities;

template <class Unit, int kKeys, DType kDType, bool kPadded, bool kKept>
struct Probabilities<Unit, kKeys, kDType, kPadded, kKept, true> {
  static constexpr int kLdsBytes = 0;
  static constexpr int kSteps = kKeys / Unit::kK;
  static constexpr int kUnroll = kSteps;

  struct Place {
    FA_DEVICE Place(LdsBytes, int) {}
  };

  typename Unit::B step[kSteps];

  FA_DEVICE Probabilities(Place, const typename Unit::C* p) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        const int f = i * Unit::kRun + word * kElements;
        const typename Unit::C& c = p[f / Unit::kRows];
        if constexpr (kElements == 4) {
          step[i].column[0][word] = Unit::pack_four(c[f % Unit::kRows], c[f % Unit::kRows + 1],
                                                    c[f % Unit::kRows + 2], c[f % Unit::kRows + 3]);
        } else {
          step[i].column[0][word] = Unit::pack_p(c[f % Unit::kRows], c[f % Unit::kRows + 1]);
        }
      }
    }
  }

  FA_DEVICE typename Unit::B operand(int i) const { return step[i]; }

 private:
  static constexpr int kWords = sizeof(typename Unit::A) / 4, kElements = Unit::kRun / kWords;  // of a word
};

template <class Unit, int kKeys, DType kDType, bool kPadded, bool kKept>
struct Probabilities<Unit, kKeys, kDType, kPadded, kKept, false> {
  using Tile = ColumnTile<Unit, kKeys * 2, kPadded>;
  static constexpr int kLdsBytes = Tile::kBytes;
  static constexpr int kSteps = kKeys / Unit::kK;
  static constexpr int kUnroll = Unit::kFewInstructions ? kSteps : 1;
  static constexpr int kHeld = kKeys / Unit::kM * Unit::kRows;  // keys of one column held by a lane
  static constexpr int kChunk = kHeld < 8 ? kHeld : 8;          // consecutive ones of these
  typedef uint32_t Words __attribute__((ext_vector_type(kChunk < 2 ? 1 : kChunk / 2)));

  // Places of a lane's writes and reads. With kKept all addresses are at constant distances from two of them:
  // the start of its own keys of its first column (`own`), and of all keys (`all`).
  struct Place {
    LdsBytes tile, own, all;
    int lane;

    FA_DEVICE Place(LdsBytes tile, int lane) : tile(tile), own(tile), all(tile), lane(lane) {
      if constexpr (kKept) {
        static_assert(kPadded, "distances are constant");
        const LdsBytes column = tile + Tile::offset(Unit::column(lane, 0), 0);
        own = here(column + Unit::held_begin(lane, kKeys) * 2);
        all = here(column + Unit::run_begin(lane) * 2);
      }
    }

    // A lane's only key, of two columns.
    FA_DEVICE void write_key(int c, uint32_t pair) const {
      const int key = Unit::held_begin(lane, kKeys);
      Tile::write_half(tile, Unit::column(lane, c), key / 8, key % 8 * 2, pair);
      Tile::write_half(tile, Unit::column(lane, c + 1), key / 8, key % 8 * 2, pair >> 16);
    }

    FA_DEVICE void write(int c, int f, Words words) const {
      if constexpr (kKept) {
        Tile::write(own, c, 0, Unit::held_step(f) * 2, words);
      } else {
        const int key = Unit::held_begin(lane, kKeys) + Unit::held_step(f);
        Tile::write(tile, Unit::column(lane, c), key / 8, key % 8 * 2, words);
      }
    }
  };

  Place place;

  FA_DEVICE Probabilities(const Place& place, const typename Unit::C* p) : place(place) {
    wave_barrier();
    if constexpr (kHeld == 1) {
#pragma unroll
      for (int c = 0; c < Unit::kColumns; c += 2) {
        place.write_key(c, Unit::pack_p(element(p, c, 0), element(p, c + 1, 0)));
      }
    } else {
#pragma unroll
      for (int c = 0; c < Unit::kColumns; ++c) {
#pragma unroll
        for (int f = 0; f < kHeld; f += kChunk) place.write(c, f, chunk(p, c, f));
      }
    }
    wave_barrier();
  }

  FA_DEVICE typename Unit::B operand(int i) const {
    if constexpr (kKept) return read_columns<Unit, Tile>(place.all, 0, i * Unit::kK / 8);
    return read_columns<Unit, Tile>(place.tile, place.lane, (i * Unit::kK + Unit::run_begin(place.lane)) / 8);
  }
  // Of steps in which lanes have other runs.
  template <class Steps>
  FA_DEVICE typename Unit::B operand_of(int i) const {
    return read_columns<Unit, Tile>(place.tile, place.lane,
                                    (i * Steps::kK + Steps::run_begin(place.lane)) / 8);
  }

 private:
  FA_DEVICE static Words chunk(const typename Unit::C* p, int c, int first) {
    Words words;
#pragma unroll
    for (int word = 0; word < kChunk / 2; ++word) {
      words[word] = Unit::pack_p(element(p, c, first + word * 2), element(p, c, first + word * 2 + 1));
    }
    return words;
  }
  FA_DEVICE static float element(const typename Unit::C* p, int c, int f) {
    return p[f / Unit::kRows][f % Unit::kRows * Unit::kColumns + c];
  }
};

}  // namespace fa
