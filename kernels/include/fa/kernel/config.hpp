// How a kernel divides its work, per arch, dtype and head dim: the one decision that the kernel, its
// launch bounds and the host's launch share.  Host and device.
#pragma once

#include "fa/arch/dtype.hpp"
#include "fa/arch/traits.hpp"
#include "fa/mma/layout.hpp"

namespace fa {

// Head dims that the forward kernel is written for; instances/generate.py reads them here.
inline constexpr int kFwdHeadDims[] = {64, 128};

constexpr bool is_fwd_head_dim(int head_dim) {
  for (const int known : kFwdHeadDims) {
    if (head_dim == known) return true;
  }
  return false;
}

// Tuning of the forward kernel.  Changes speed, registers and LDS, never results.
struct FwdConfig {
  int waves;           // waves of a workgroup; each has one step's columns of queries
  int keys;            // keys of a K/V tile
  int waves_per_simd;  // what the compiler must leave registers for
};

constexpr FwdConfig fwd_config(Gfx arch, DType, int head_dim) {
  switch (traits(arch).unit) {
    case MatrixUnit::mfma: return {4, traits(arch).separate_accumulators ? 32 : 64, 2};
    case MatrixUnit::wmma: return {8, head_dim > 64 ? 32 : 64, 1};
    case MatrixUnit::dot2: return {8, head_dim > 64 ? 32 : 64, 1};
  }
  return {};
}

// Queries and threads of one workgroup.
struct FwdTile {
  int block_m;
  int threads;
};

constexpr FwdTile fwd_tile(Gfx arch, DType dtype, int head_dim) {
  const int waves = fwd_config(arch, dtype, head_dim).waves;
  switch (traits(arch).unit) {
    case MatrixUnit::mfma:
      return {waves * Layout<MatrixUnit::mfma>::kN, waves * Layout<MatrixUnit::mfma>::kWave};
    case MatrixUnit::wmma:
      return {waves * Layout<MatrixUnit::wmma>::kN, waves * Layout<MatrixUnit::wmma>::kWave};
    case MatrixUnit::dot2:
      return {waves * Layout<MatrixUnit::dot2>::kN, waves * Layout<MatrixUnit::dot2>::kWave};
  }
  return {};
}

}  // namespace fa
