// The tiles of a workgroup that its wave sees, and those of them with hidden elements.
#pragma once

#include "device/arch/device.hpp"
#include "device/masks/mask.hpp"

namespace fa {

// A wave-uniform condition, as the sign of a number in a scalar register. The compiler moves a bool used in
// several blocks to a vector register.
struct Flag {
  int sign;
  FA_DEVICE operator bool() const { return here_uniform(sign) < 0; }
};

// Tiles of kSize rows.
template <int kSize>
struct TileRange : TileBounds {
  FA_DEVICE bool seen(int first) const { return first < wave_end && first + kSize > wave_begin; }
  FA_DEVICE bool masked(int first) const { return first < unmasked_begin || first + kSize > unmasked_end; }
  FA_DEVICE Flag seen_flag(int first) const { return {(first - wave_end) & (wave_begin - first - kSize)}; }
  FA_DEVICE Flag masked_flag(int first) const {
    return {(first - unmasked_begin) | (unmasked_end - first - kSize)};
  }
};

}  // namespace fa
