// How the backward kernels divide their work, per arch, dtype and head dim. Shared by the kernels, their
// launch bounds and the host's launch. Host and device.
#pragma once

#include "device/call/config.hpp"

namespace fa {

// Tuning of the kernels of dk and dv, separate and fused. The rows are in tables/tiles.toml. Its head
// explains the fields.
struct DkDvConfig {
  int pairs = 0;
  int queries = 0;
  int waves_per_simd = 0;
  int column_blocks = 0;
  int own_steps = 0;
  int steps_at_once = 0;
  bool padded_tiles = false;
  int prefetch = 0;
  bool overlaid = false;
  bool early_rows = false;
  bool ping_pong = false;
  bool row_major = false;
  bool early_operands = false;
  bool kept_zeros = false;
  bool kept_priority = false;
  bool bit_masks = false;
  bool by_element = false;
  bool staggered = false;
  int tiles_at_once = 1;
  bool early_numbers = false;
  bool tight_registers = false;
  bool early_mask = false;
  bool features = false;
  bool preferred = false;
};

// Tuning of the dq kernel.
struct DqConfig {
  int waves = 0;
  int keys = 0;
  int waves_per_simd = 0;
  int q_steps = 0;
  int dout_steps = 0;
  int steps_at_once = 0;
  bool padded_tiles = false;
  int prefetch = 0;
  bool early_rows = false;
  bool interleaved = false;
  bool short_prologue = false;
  bool row_major = false;
  bool late_numbers = false;
  bool direct = false;
  bool early_mask = false;
};

// As for the forward kernels (call/config.hpp).
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-inline"
constexpr DkDvConfig dkdv_config(Op op, Gfx arch, DType dtype, int head_dim, bool featured = false);
constexpr DqConfig dq_config(Op op, Gfx arch, DType dtype, int head_dim, bool featured = false);
#pragma clang diagnostic pop

// The head dims with rows of the fused kernel, and of the separate ones: for the device pass's ISA, on the
// host for any.
struct HeadDims {
  int least = kMaxHeadDim, most = 0;

  constexpr void add(int head_dim) {
    if (head_dim < least) least = head_dim;
    if (head_dim > most) most = head_dim;
  }
};
constexpr HeadDims fused_head_dims() {
  HeadDims found;
#define FA_FUSED_HEAD_DIM(head_dim) found.add(head_dim);
#include "generated/device/tiles/workgroups.inc"
#undef FA_FUSED_HEAD_DIM
  return found;
}
constexpr HeadDims separate_head_dims() {
  HeadDims found;
#define FA_SEPARATE_HEAD_DIM(head_dim) found.add(head_dim);
#include "generated/device/tiles/workgroups.inc"
#undef FA_SEPARATE_HEAD_DIM
  return found;
}

// Keys and threads of one workgroup.
struct DkDvTile {
  int block_n;
  int threads;
};

constexpr DkDvTile tile_of(const DkDvConfig& config, Gfx arch) {
  return {config.pairs * larger(config.column_blocks, 1) * traits(arch).step_columns,
          2 * config.pairs * traits(arch).wave};
}
constexpr DkDvTile dkdv_tile(Op op, Gfx arch, DType dtype, int head_dim) {
  return tile_of(dkdv_config(op, arch, dtype, head_dim), arch);
}

constexpr FwdTile tile_of(const DqConfig& config, Gfx arch) {
  return {config.waves * traits(arch).step_columns, config.waves * traits(arch).wave};
}
constexpr FwdTile dq_tile(Op op, Gfx arch, DType dtype, int head_dim) {
  return tile_of(dq_config(op, arch, dtype, head_dim), arch);
}

}  // namespace fa
