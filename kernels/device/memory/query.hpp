// A wave's rows of Q as operand B of S^T = K * Q^T. The first steps are in registers. The others are in the
// wave's own part of LDS if registers are short.
#pragma once

#include "device/memory/lds_tile.hpp"
#include "device/memory/view.hpp"
#include "device/mma/unit.hpp"

namespace fa {

// Applies the sign of softmax_scale to Q, so the kernel can treat its scale as positive. A negative scale
// flips the sign of Q. Zero makes Q zero. Exact.
struct QuerySign {
  uint32_t keep;
  uint32_t flip;

  FA_DEVICE explicit QuerySign(float scale) : keep(scale == 0 ? 0 : ~0u), flip(scale < 0 ? 0x80008000u : 0) {}

  // As the constructor, in scalar registers.
  FA_DEVICE static QuerySign from_bits(float scale) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, scale), size = bits << 1;
    // The top bit is set if the scale is non-zero. Opaque, or it becomes a comparison in vector registers.
    const int sized = here_uniform(static_cast<int>(size | -size));
    const uint32_t flipped = bits & sized & 0x80000000u;
    QuerySign sign(1);
    sign.keep = sized >> 31;
    sign.flip = flipped | flipped >> 16;
    return sign;
  }

  // Whether Q stays unchanged. Wave-uniform.
  FA_DEVICE bool none() const { return (~keep | flip) == 0; }

  template <class T>
  FA_DEVICE T apply(T words) const {
    return (words & keep) ^ flip;
  }
};

// As Sign, for Q in registers: only a comparison if the scale is positive.
template <class Sign>
struct ShortSignOf {
  float scale;

  FA_DEVICE bool none() const { return here_uniform(__builtin_bit_cast(int, scale)) > 0; }

  template <class T>
  FA_DEVICE T apply(T words) const {
    return Sign(QuerySign::from_bits(scale)).apply(words);
  }
};
using ShortSign = ShortSignOf<QuerySign>;

// Steps kFirst to kFirst + kSteps of the contraction.
template <class Unit, int kFirst, int kSteps>
struct QueryInRegisters {
  typename Unit::B step[kSteps];

  template <class View, class Sign>
  FA_DEVICE void load(const View& view, Sign sign, int lane) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int byte = ((kFirst + i) * Unit::kK + Unit::run_begin(lane)) * kOperandBytes<Unit>;
#pragma unroll
      for (int c = 0; c < Unit::kColumns; ++c) {
        step[i].column[c] = read<typename Unit::A>(view, Unit::column(lane, c), byte);
      }
    }
    if (sign.none()) return;
    for_each([&](auto& column) { column = here(sign.apply(here(column))); });
  }

  // In two parts: loads, and what makes operands of their words, with other loads in between.
  template <class Coded, class View>
  FA_DEVICE void begin(const View& view, int lane) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int byte = ((kFirst + i) * Unit::kK + Unit::run_begin(lane)) * 2;
#pragma unroll
      for (int c = 0; c < Unit::kColumns; ++c) {
        step[i].column[c] = __builtin_bit_cast(typename Unit::A,
                                               Coded::template raw<u32x4>(view, Unit::column(lane, c), byte));
      }
    }
  }
  template <class Coded, class Sign>
  FA_DEVICE void finish(const Coded& coded, Sign sign) {
    for_each([&](auto& column) {
      const auto words = coded.converted(__builtin_bit_cast(u32x4, here(column)));
      column = __builtin_bit_cast(typename Unit::A, sign.apply(words));
    });
  }

  FA_DEVICE typename Unit::B operand(int i) const { return step[i - kFirst]; }

  // All loads are complete from here on.
  FA_DEVICE void wait() {
    for_each([](auto& column) { column = here(column); });
  }

 private:
  template <class Do>
  FA_DEVICE void for_each(const Do& change) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int c = 0; c < Unit::kColumns; ++c) change(step[i].column[c]);
    }
  }

  template <class A, class View>
  FA_DEVICE static A read(const View& view, int row, int byte) {
    if constexpr (sizeof(A) == sizeof(u32x4)) {
      return view.template read<A>(row, byte);
    } else {
      A run;
      run.lo = view.template read<u32x4>(row, byte);
      run.hi = view.template read<u32x4>(row, byte + 16);
      return run;
    }
  }
};

template <class Unit, int kFirst, int kSteps, bool kPadded, bool kFragments>
struct QueryInLds {
  using Tile = Choice<kFragments, PlacedTile<Fragments<Unit::kN, kSteps * Unit::kK * 2>>,
                      ColumnTile<Unit, kSteps * Unit::kK * 2, kPadded>>;

  template <class View, class Sign, class Convert>
  FA_DEVICE static void load(LdsBytes tile, const View& view, Sign sign, Convert& convert, int lane) {
    constexpr int kPieces = Unit::kN * Tile::kUnits;
    constexpr bool kWhole = kPieces % Unit::kWave == 0;  // or some units are moved twice
#pragma unroll
    for (int i = 0; i < (kPieces + Unit::kWave - 1) / Unit::kWave; ++i) {
      // Opaque before a division. The compiler would otherwise divide 16-bit halves of registers.
      const int own = (Tile::kUnits & (Tile::kUnits - 1)) == 0 ? lane : here(lane);
      const int index = kWhole ? own + i * Unit::kWave : (own + i * Unit::kWave) % kPieces;
      const int row = kFragments ? index % Unit::kN : index / Tile::kUnits;
      const int unit = kFragments ? index / Unit::kN : index % Tile::kUnits;
      const int byte = kFirst * Unit::kK * 2 + unit * 16;
      Tile::write(tile, row, unit, 0, convert(sign.apply(view.template read<u32x4>(row, byte))));
    }
    wave_barrier();
  }

  // In two parts, as QueryInRegisters, for a tile of at most a wave's pieces.
  struct Words {
    u32x4 of;
  };
  template <class Coded, class View>
  FA_DEVICE static Words begin(const View& view, int lane) {
    static_assert(Unit::kN * Tile::kUnits <= Unit::kWave && kFirst == 0 && !kFragments);
    const int index = lane % (Unit::kN * Tile::kUnits);
    return {Coded::template raw<u32x4>(view, index / Tile::kUnits, index % Tile::kUnits * 16)};
  }
  template <class Coded, class Sign>
  FA_DEVICE static void finish(LdsBytes tile, const Words& words, const Coded& coded, Sign sign, int lane) {
    const int index = lane % (Unit::kN * Tile::kUnits);
    const u32x4 own = sign.apply(coded.converted(here(words.of)));
    Tile::write(tile, index / Tile::kUnits, index % Tile::kUnits, 0, own);
    wave_barrier();
  }

  FA_DEVICE static typename Unit::B operand(LdsBytes tile, int i, int lane) {
    const int unit = ((i - kFirst) * Unit::kK + Unit::run_begin(lane)) / 8;
    return read_columns<Unit, Tile>(tile, lane, unit);
  }
};

template <class Unit, int kFirst>
struct QueryInRegisters<Unit, kFirst, 0> {
  template <class View, class Sign>
  FA_DEVICE void load(const View&, Sign, int) {}
  FA_DEVICE typename Unit::B operand(int) const { return {}; }
};

template <class Unit, int kFirst, bool kPadded, bool kFragments>
struct QueryInLds<Unit, kFirst, 0, kPadded, kFragments> {
  struct Tile {
    static constexpr int kBytes = 0;
  };
  struct Words {};
  template <class View, class Sign, class Convert>
  FA_DEVICE static void load(LdsBytes, const View&, Sign, Convert&, int) {}
  FA_DEVICE static typename Unit::B operand(LdsBytes, int, int) { return {}; }
};

template <class Unit, int kHeadDim, int kInRegisters, bool kPadded, bool kFragments = false>
struct Query {
  static constexpr int kSteps = kHeadDim / Unit::kK;
  // If all steps are in LDS and each has long code, they share it in a loop.
  static constexpr int kUnroll =
      kInRegisters == 0 && (kHeadDim > 128 || !Unit::kFewInstructions) ? 2 : kSteps;
  using Held = QueryInRegisters<Unit, 0, kInRegisters>;
  using Rest = QueryInLds<Unit, kInRegisters, kSteps - kInRegisters, kPadded, kFragments>;
  static constexpr int kLdsBytes = Rest::Tile::kBytes;
  using Begun = Choice<kLone<Unit>, typename Rest::Words, Query>;  // between loads and operands

  Held held;
  LdsBytes tile;
  int lane;

  Query() = default;

  // As load, of the words of `begin`.
  template <class Coded, class Sign>
  FA_DEVICE Query(LdsBytes tile, const typename Rest::Words& words, const Coded& coded, Sign sign, int lane)
      : tile(tile), lane(lane) {
    Rest::finish(tile, words, coded, sign, lane);
  }

  // If several waves share the tile, only one fills it, and a barrier must follow.
  template <class View, class Sign, class Convert>
  FA_DEVICE Query(LdsBytes tile, const View& view, Sign sign, Convert& convert, int lane, bool fills = true)
      : tile(tile), lane(lane) {
    held.load(view, sign, lane);
    if (fills) Rest::load(tile, view, sign, convert, lane);
  }

  // Call before a loop with other loads in flight. The first use of Q would wait for these too.
  FA_DEVICE void wait() { held.wait(); }

  FA_DEVICE typename Unit::B operand(int i) const {
    return i < kInRegisters ? held.operand(i) : Rest::operand(tile, i, lane);
  }
};

}  // namespace fa
