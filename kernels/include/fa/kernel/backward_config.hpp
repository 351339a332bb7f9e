// How the backward kernels divide their work, per arch, dtype and head dim: the one decision that the
// kernels, their launch bounds and the host's launch share.  Host and device.
#pragma once

#include "fa/kernel/config.hpp"

namespace fa {

// Tuning of the dk and dv kernel.  Waves work in pairs that share a step's columns of keys.
struct DkDvConfig {
  int pairs;                  // of waves of a workgroup
  int queries;                // of a tile
  int waves_per_simd;         // what the compiler must leave registers for
  int own_steps;              // steps of a wave's K or V held in registers; the others are in LDS
  int steps_at_once = 0;      // matrix steps whose operands the compiler may load at once; 0: no limit
  bool padded_tiles = false;  // LDS rows are padded, not permuted: one address for all of a lane's units
  int ahead = 0;              // matrix steps whose operands are read before those of earlier ones are used up
  bool overlaid = false;      // a tile's rows and their transposes share LDS, for a barrier more
  bool early_rows = false;    // a tile's rows are stored while the one before it is in use
  bool begun = false;         // a product's first operands are read before its other operand is made
};

// Tuning of the dq kernel.  Each wave has a step's columns of queries.
struct DqConfig {
  int waves;                  // of a workgroup
  int keys;                   // of a tile
  int waves_per_simd;         // what the compiler must leave registers for
  int q_steps;                // steps of a wave's Q held in registers; the others are in LDS
  int dout_steps;             // those of dout
  int steps_at_once = 0;      // matrix steps whose operands the compiler may load at once; 0: no limit
  bool padded_tiles = false;  // LDS rows are padded, not permuted: one address for all of a lane's units
  int ahead = 0;              // matrix steps whose operands are read before those of earlier ones are used up
  bool early_rows = false;    // a tile's rows are stored while the one before it is in use
};

constexpr DkDvConfig dkdv_config(Gfx arch, DType dtype, int head_dim) {
  switch (traits(arch).unit) {
    case MatrixUnit::mfma: {
      const int steps = head_dim / Layout<MatrixUnit::mfma>::kK;
      const bool small = head_dim <= 64 && !traits(arch).separate_accumulators, large = head_dim > 192;
      return {.pairs = large ? 2 : 4,
              .queries = 32,
              .waves_per_simd = small   ? 4
                                : large ? 1
                                        : 2,
              .own_steps = steps,
              .padded_tiles = head_dim <= 128,
              .ahead = small             ? 2
                       : head_dim <= 128 ? 3
                                         : 0,
              .overlaid = head_dim > 128,
              .early_rows = head_dim > 32 && head_dim <= 128,
              .begun = !small && head_dim <= 128};
    }
    case MatrixUnit::wmma: {
      const int steps = head_dim / Layout<MatrixUnit::wmma>::kK;
      if (head_dim <= 128) {
        return {.pairs = 4,
                .queries = head_dim > 64 ? 16 : 32,
                .waves_per_simd = 8,
                .own_steps = steps,
                .padded_tiles = true,
                .ahead = head_dim > 96 ? 1 : 3,
                .early_rows = true};
      }
      return {.pairs = 4,
              .queries = 16,
              .waves_per_simd = 4,
              .own_steps = 6,
              .steps_at_once = 2,
              .overlaid = true};
    }
    case MatrixUnit::dot2: {
      if (head_dim <= 64) {
        return {.pairs = 4,
                .queries = 32,
                .waves_per_simd = 4,
                .own_steps = 0,
                .padded_tiles = true,
                .ahead = dtype == DType::fp16 ? 4 : 0,
                .early_rows = true};
      }
      if (head_dim <= 128) {
        return {.pairs = 4,
                .queries = 32,
                .waves_per_simd = 4,
                .own_steps = 0,
                .padded_tiles = head_dim < 128,
                .ahead = dtype == DType::fp16 ? 4 : 0,
                .overlaid = true};
      }
      return {.pairs = 2,
              .queries = 16,
              .waves_per_simd = 2,
              .own_steps = 0,
              .padded_tiles = true,
              .overlaid = true};
    }
  }
  return {};
}

constexpr DqConfig dq_config(Gfx arch, DType dtype, int head_dim) {
  switch (traits(arch).unit) {
    case MatrixUnit::mfma: {
      const int steps = head_dim / Layout<MatrixUnit::mfma>::kK;
      const bool tight = traits(arch).separate_accumulators && head_dim == 128;
      // Registers for operands that are read long before.
      const bool roomy = !traits(arch).separate_accumulators && head_dim > 64 && head_dim <= 128;
      return {.waves = 4,
              .keys = 32,
              .waves_per_simd = head_dim <= 64 && !traits(arch).separate_accumulators ? 3
                                : head_dim <= 128                                     ? 2
                                                                                      : 1,
              .q_steps = steps,
              .dout_steps = tight ? steps - 1 : steps,
              .padded_tiles = head_dim < 128 || tight,
              .ahead = roomy             ? 4
                       : head_dim <= 128 ? 2
                                         : 0};
    }
    case MatrixUnit::wmma: {
      const int steps = head_dim / Layout<MatrixUnit::wmma>::kK;
      if (head_dim <= 64) {
        return {.waves = 8,
                .keys = 32,
                .waves_per_simd = 8,
                .q_steps = steps,
                .dout_steps = steps,
                .steps_at_once = 2,
                .padded_tiles = true};
      }
      if (head_dim <= 128) {
        return {.waves = 8,
                .keys = 16,
                .waves_per_simd = 6,
                .q_steps = steps,
                .dout_steps = 2,
                .steps_at_once = 4,
                .padded_tiles = true};
      }
      return {.waves = 2,
              .keys = 16,
              .waves_per_simd = 1,
              .q_steps = 1,
              .dout_steps = 0,
              .steps_at_once = 1,
              .padded_tiles = true};
    }
    case MatrixUnit::dot2: {
      if (head_dim <= 64) {
        return {.waves = 8,
                .keys = 32,
                .waves_per_simd = 4,
                .q_steps = 0,
                .dout_steps = 0,
                .steps_at_once = 4,
                .padded_tiles = true,
                .ahead = dtype == DType::fp16 ? 4 : 0,
                .early_rows = true};
      }
      if (head_dim == 128 && dtype == DType::fp16) {
        return {.waves = 4,
                .keys = 32,
                .waves_per_simd = 2,
                .q_steps = 0,
                .dout_steps = 0,
                .steps_at_once = 4,
                .ahead = 4,
                .early_rows = true};
      }
      if (head_dim <= 128) {
        return {.waves = 4,
                .keys = head_dim > 96 ? 16 : 32,
                .waves_per_simd = 2,
                .q_steps = 0,
                .dout_steps = 0,
                .steps_at_once = 4,
                .padded_tiles = true};
      }
      return {.waves = 2,
              .keys = 16,
              .waves_per_simd = 1,
              .q_steps = 0,
              .dout_steps = 0,
              .steps_at_once = 4,
              .padded_tiles = true,
              .early_rows = true};
    }
  }
  return {};
}

// The kernel that computes dq too, and its head dims.
inline constexpr int kLeastFusedHeadDim = 64, kMostFusedHeadDim = 128;
constexpr DkDvConfig fused_config(Gfx arch, DType dtype, int head_dim) {
  DkDvConfig config = dkdv_config(arch, dtype, head_dim);
  if (traits(arch).unit == MatrixUnit::mfma) {
    if (head_dim <= 64 && !traits(arch).separate_accumulators) {
      // Two workgroups at once: 32 KiB of LDS each, without any padding, and 128 registers.
      config.ahead = 1;
      config.padded_tiles = false;
    }
    // All registers are in use there.
    if (traits(arch).separate_accumulators && head_dim > 96) config.begun = false;
  } else {
    config.waves_per_simd = head_dim > 64 ? 6 : 8;
    config.ahead = 2;
  }
  return config;
}

// Whether it has a loop with all features, too.  Where results have registers of their own, or a wave few in
// all, that loop finds none: those calls are split.
constexpr bool fused_features(Gfx arch, int head_dim) {
  const bool small = traits(arch).unit == MatrixUnit::mfma && head_dim <= 64;
  return !traits(arch).separate_accumulators && !small;
}

// Keys and threads of one workgroup.
struct DkDvTile {
  int block_n;
  int threads;
};

constexpr DkDvTile tile_of(const DkDvConfig& config, Gfx arch) {
  return {config.pairs * step_columns(traits(arch).unit), 2 * config.pairs * traits(arch).wave};
}
constexpr DkDvTile dkdv_tile(Gfx arch, DType dtype, int head_dim) {
  return tile_of(dkdv_config(arch, dtype, head_dim), arch);
}
constexpr DkDvTile fused_tile(Gfx arch, DType dtype, int head_dim) {
  return tile_of(fused_config(arch, dtype, head_dim), arch);
}

constexpr FwdTile dq_tile(Gfx arch, DType dtype, int head_dim) {
  const int waves = dq_config(arch, dtype, head_dim).waves;
  return {waves * step_columns(traits(arch).unit), waves * traits(arch).wave};
}

}  // namespace fa
