// A wave's rows of Q as operand B of S^T = K * Q^T: held in registers, or, where a lane needs several
// columns and so too many registers, in the wave's own part of LDS.
#pragma once

#include "fa/mma/unit.hpp"
#include "fa/tile/lds_tile.hpp"
#include "fa/tile/window.hpp"

namespace fa {

// What softmax_scale does to Q so that the kernel may take its scale to be positive: a negative one
// turns the sign of Q, zero makes Q zero.  Exact.
struct QuerySign {
  uint32_t keep;
  uint32_t flip;

  FA_DEVICE explicit QuerySign(float scale) : keep(scale == 0 ? 0 : ~0u), flip(scale < 0 ? 0x80008000u : 0) {}

  template <class T>
  FA_DEVICE T apply(T words) const {
    return (words & keep) ^ flip;
  }
};

template <class Unit, int kHeadDim>
struct QueryInRegisters {
  static constexpr int kLdsBytes = 0;
  static constexpr int kSteps = kHeadDim / Unit::kK;
  static constexpr int kUnroll = kSteps;

  typename Unit::B step[kSteps];

  template <class Window>
  FA_DEVICE QueryInRegisters(LdsBytes, const Window& window, QuerySign sign, int lane) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int byte = (i * Unit::kK + Unit::run_begin(lane)) * 2;
      step[i].column[0] = sign.apply(read<typename Unit::A>(window, Unit::column(lane, 0), byte));
    }
  }

  FA_DEVICE typename Unit::B operand(int i) const { return step[i]; }

 private:
  template <class A, class Window>
  FA_DEVICE static A read(const Window& window, int row, int byte) {
    if constexpr (sizeof(A) == sizeof(u32x4)) {
      return window.template read<A>(row, byte);
    } else {
      A run;
      run.lo = window.template read<u32x4>(row, byte);
      run.hi = window.template read<u32x4>(row, byte + 16);
      return run;
    }
  }
};

template <class Unit, int kHeadDim>
struct QueryInLds {
  using Tile = LdsTile<Unit::kN, kHeadDim * 2, Unit::kN>;
  static constexpr int kLdsBytes = Tile::kBytes;
  static constexpr int kSteps = kHeadDim / Unit::kK;
  static constexpr int kUnroll = 2;

  LdsBytes tile;
  int lane;

  template <class Window>
  FA_DEVICE QueryInLds(LdsBytes tile, const Window& window, QuerySign sign, int lane)
      : tile(tile), lane(lane) {
#pragma unroll
    for (int i = 0; i < Unit::kN * Tile::kUnits / Unit::kWave; ++i) {
      const int index = lane + i * Unit::kWave;
      const int row = index / Tile::kUnits, unit = index % Tile::kUnits;
      Tile::write(tile, row, unit, 0, sign.apply(window.template read<u32x4>(row, unit * 16)));
    }
    wave_barrier();
  }

  FA_DEVICE typename Unit::B operand(int i) const {
    typename Unit::B b;
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
      b.column[c] = Tile::template read<typename Unit::A>(tile, Unit::column(lane, c),
                                                          (i * Unit::kK + Unit::run_begin(lane)) / 8);
    }
    return b;
  }
};

template <class Unit, int kHeadDim, bool kOneColumn = Unit::kColumns == 1>
struct QueryOf {
  using type = QueryInRegisters<Unit, kHeadDim>;
};

template <class Unit, int kHeadDim>
struct QueryOf<Unit, kHeadDim, false> {
  using type = QueryInLds<Unit, kHeadDim>;
};

}  // namespace fa
