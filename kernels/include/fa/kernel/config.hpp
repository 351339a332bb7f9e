// How a kernel divides its work, per arch, dtype and head dim: the one decision that the kernel, its
// launch bounds and the host's launch share.  Host and device.
#pragma once

#include "fa/arch/dtype.hpp"
#include "fa/arch/traits.hpp"
#include "fa/mma/layout.hpp"

namespace fa {

// Head dims that the forward kernel is written for; instances/generate.py reads them here.
inline constexpr int kFwdHeadDims[] = {32, 64, 96, 128, 192, 256};

constexpr int larger(int a, int b) { return a > b ? a : b; }

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
  int query_steps;     // steps of Q that are held in registers; the others are in LDS
  bool one_stage;      // K and V on their way to LDS share registers: fewer, and less time to hide latency
  int ahead;           // matrix steps whose operands the compiler may load at once; 0: as many as it likes
};

// `featured`: of the loop that has all features; waves and their queries are those of the plain one.
constexpr FwdConfig fwd_config(Gfx arch, DType, int head_dim, bool featured = false) {
  const bool large = head_dim > 128;
  switch (traits(arch).unit) {
    case MatrixUnit::mfma: {
      const int steps = head_dim / Layout<MatrixUnit::mfma>::kK;
      const bool separate = traits(arch).separate_accumulators;
      if (head_dim <= 64) return {4, separate ? 32 : 64, 3, steps, featured, 0};
      if (!large) return {4, separate ? 32 : 64, 2, steps, featured, 0};
      if (separate && head_dim > 192) return {4, 32, 1, steps, true, 0};
      return {8, 32, 2, head_dim > 192 ? 12 : 8, true, 0};
    }
    case MatrixUnit::wmma: {
      const int steps = head_dim / Layout<MatrixUnit::wmma>::kK;
      if (featured && head_dim > 64 && !large) return {8, 16, 6, steps, true, 0};
      const bool one_stage = featured;
      if (!large) return {8, head_dim > 64 ? 32 : 64, 6, steps, one_stage, head_dim > 96 ? 4 : 0};
      if (head_dim <= 192) return {8, 16, 1, 6, false, 4};
      return {8, 16, 1, 5, true, 0};
    }
    case MatrixUnit::dot2:
      if (!large) return {8, head_dim > 64 ? 32 : 64, 4, 0, featured, 0};
      return {head_dim > 192 ? 4 : 8, 16, 1, 0, true, head_dim > 192 ? 1 : 0};
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
