// A tile in LDS, read and written by units.
#pragma once

#include "fa/arch/device.hpp"
#include "fa/tile/swizzle.hpp"

namespace fa {

template <int kRows, int kRowBytes, int kPeriod>
struct LdsTile : Swizzle<kRows, kRowBytes, kPeriod> {
  using LdsTile::Swizzle::offset;

  // The tile from a multiple of kPeriod rows on, in which rows are permuted alike.
  FA_DEVICE static LdsBytes period(LdsBytes tile, int index) { return tile + index * kPeriod * kRowBytes; }

  template <class T>
  FA_DEVICE static void write(LdsBytes tile, int row, int unit, int byte, T value) {
    *reinterpret_cast<__attribute__((address_space(3))) T*>(tile + offset(row, unit) + byte) = value;
  }

  // A run of elements that begins at a unit: one unit, or two where A is twice as long.
  template <class A>
  FA_DEVICE static A read(LdsBytes tile, int row, int unit) {
    if constexpr (sizeof(A) == sizeof(u32x4)) {
      return *reinterpret_cast<__attribute__((address_space(3))) A*>(tile + offset(row, unit));
    } else {
      A run;
      run.lo = read<u32x4>(tile, row, unit);
      run.hi = read<u32x4>(tile, row, unit + 1);
      return run;
    }
  }
};

}  // namespace fa
