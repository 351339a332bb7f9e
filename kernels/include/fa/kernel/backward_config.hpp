// How the backward kernels divide their work, per arch, dtype and head dim: the one decision that the
// kernels, their launch bounds and the host's launch share.  Host and device.
#pragma once

#include "fa/kernel/config.hpp"

namespace fa {

// Tuning of the kernels of dk and dv, split and fused.  The rows are in instances/tiles.toml, whose head says
// what the fields mean.
struct DkDvConfig {
  int pairs;
  int queries;
  int waves_per_simd;
  int own_steps = 0;
  int steps_at_once = 0;
  bool padded_tiles = false;
  int ahead = 0;
  bool overlaid = false;
  bool early_rows = false;
  bool begun = false;
  bool features = false;
};

// Tuning of the dq kernel.
struct DqConfig {
  int waves;
  int keys;
  int waves_per_simd;
  int q_steps = 0;
  int dout_steps = 0;
  int steps_at_once = 0;
  bool padded_tiles = false;
  int ahead = 0;
  bool early_rows = false;
};

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc++20-designator"
constexpr DkDvConfig dkdv_config(Gfx arch, DType dtype, int head_dim) {
  constexpr bool featured = false;  // both loops have one tile
#define FA_TILE_bwd_dkdv FA_FIRST_ROW
#include "fa/kernel/tiles.inc"
#undef FA_TILE_bwd_dkdv
  return {};
}

constexpr DqConfig dq_config(Gfx arch, DType dtype, int head_dim) {
  constexpr bool featured = false;
#define FA_TILE_bwd_dq FA_FIRST_ROW
#include "fa/kernel/tiles.inc"
#undef FA_TILE_bwd_dq
  return {};
}

// The kernel that computes dq too, and its head dims.
inline constexpr int kLeastFusedHeadDim = 64, kMostFusedHeadDim = 128;
constexpr DkDvConfig fused_config(Gfx arch, DType dtype, int head_dim) {
  constexpr bool featured = false;
#define FA_TILE_bwd_fused FA_FIRST_ROW
#include "fa/kernel/tiles.inc"
#undef FA_TILE_bwd_fused
  return {};
}
#pragma clang diagnostic pop

// Whether it has a loop with all features, too; where it has none, for want of registers, those calls are
// split.
constexpr bool fused_features(Gfx arch, DType dtype, int head_dim) {
  return fused_config(arch, dtype, head_dim).features;
}

// Keys and threads of one workgroup.
struct DkDvTile {
  int block_n;
  int threads;
};

constexpr DkDvTile tile_of(const DkDvConfig& config, Gfx arch) {
  return {config.pairs * traits(arch).step_columns, 2 * config.pairs * traits(arch).wave};
}
constexpr DkDvTile dkdv_tile(Gfx arch, DType dtype, int head_dim) {
  return tile_of(dkdv_config(arch, dtype, head_dim), arch);
}
constexpr DkDvTile fused_tile(Gfx arch, DType dtype, int head_dim) {
  return tile_of(fused_config(arch, dtype, head_dim), arch);
}

constexpr FwdTile dq_tile(Gfx arch, DType dtype, int head_dim) {
  const int waves = dq_config(arch, dtype, head_dim).waves;
  return {waves * traits(arch).step_columns, waves * traits(arch).wave};
}

}  // namespace fa
