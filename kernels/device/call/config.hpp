// How a kernel divides its work, per arch, dtype and head dim. Shared by the kernel, its launch bounds and
// the host's launch. Host and device.
#pragma once

#include "device/arch/dtype.hpp"
#include "device/arch/traits.hpp"
#include "device/call/params.hpp"
#include "device/mma/layout.hpp"

namespace fa {

// The columns of a workgroup. queries: of one head. many_queries: a larger workgroup. uneven_queries: rows of
// v are shorter than those of q and k (forward/uneven.hpp). shared_queries: several waves share them
// (forward/wide.hpp). packed: for decode, queries of all heads of q that share a head of k and v. Packed row
// r is head r % group of query r / group.
enum class Rows { queries, many_queries, uneven_queries, shared_queries, packed };

#include "generated/device/kinds.inc"

// The masks supported by a loop: none, any kind, boolean ones, or biases.
enum class Masks { none, any, boolean, biases };

constexpr int larger(int a, int b) { return a > b ? a : b; }

// When K and V move into LDS while tiles are computed (forward/parts/schedule.hpp).
enum class Schedule {
  two_stages,  // the next K and V are loaded during a tile, into separate registers
  one_stage,   // K and V share registers: fewer registers, and less time to hide latency
  pipelined,   // as two_stages; K is replaced right after the first product, V during it
  two_tiles,   // two of K and V in LDS, one stored while the other is in use; V as rows, turned when read
  two_tiles_in_turn,  // as two_tiles; K and V share registers
  direct,             // as two_tiles; loads write straight into LDS
  direct_slots,       // as direct; a tile's exponentials run between the products of the next one's scores
  eager,              // likewise through registers: codes of 8 bits that CDNA 3 multiplies
  slots_in_turn,      // likewise through registers; two groups of waves take turns at the matrix unit
  own_keys,           // not at all: each wave loads its own keys (forward/own_keys.hpp, own_vector.hpp)
};

// Tuning of the forward kernel, and of decode. Changes speed, registers and LDS, never results. The rows are
// in tables/tiles.toml. Its head explains the fields.
struct FwdConfig {
  int waves = 0;
  int keys = 0;
  int waves_per_simd = 0;
  int query_steps = 0;
  Schedule schedule = Schedule::two_stages;
  int steps_at_once = 0;
  int prefetch = 0;
  int value_lanes = 1;
  int compares_at_once = 1;
  bool padded_tiles = false;
  bool dual_issue = false;
  bool scalar_scale = false;
  bool identity_shortcuts = false;
  bool buffer_stores = false;
  bool half_stores = false;
  bool short_prologue = false;
  bool out_first = false;
  bool plain_exponents = false;
  bool two_sums = false;
  bool early_mask = false;
  bool mask_loops = false;
  bool late_mask = false;
  int slices = 1;
  int column_blocks = 0;
  bool narrow_steps = false;
};

// The first matching row of the table of tiles, or one without waves. A translation unit has only the rows it
// uses (call/tiles.hpp): a changed row recompiles only its own kernels.
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-inline"
// `featured`: the loop with all features. Its waves and their queries are the plain loop's.
constexpr FwdConfig forward_config(Op op, Gfx arch, DType dtype, int head_dim, bool featured = false);
#pragma clang diagnostic pop

// Begins a kernel: its threads, and the waves per SIMD that the compiler must leave registers for. `tile` and
// `op` are as in tables/kinds.toml.
#define FA_KERNEL(tile, op, dtype, head_dim)                                                               \
  extern "C" __attribute__((global)) __attribute__((                                                       \
      amdgpu_flat_work_group_size(fa::tile##_tile(fa::Op::op, fa::kCurrentGfx, dtype, head_dim).threads,   \
                                  fa::tile##_tile(fa::Op::op, fa::kCurrentGfx, dtype, head_dim).threads))) \
  __attribute__((amdgpu_waves_per_eu(                                                                      \
      fa::tile##_config(fa::Op::op, fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void

// Threads of a workgroup of the kernel that combines the parts of a decode.
inline constexpr int kCombineThreads = 256;

// The kernel that examines a boolean mask: rows of the mask per workgroup (the rows of one wave of a masked
// forward), and its threads.
constexpr int mask_rows(Gfx arch) { return traits(arch).step_columns; }
inline constexpr int kMaskRangesThreads = 256;

// Rows of queries (packed ones for decode) and threads of one workgroup.
struct FwdTile {
  int block_m;
  int threads;
};

// All waves have a workgroup's packed rows. Slices of a head dim share them.
constexpr FwdTile forward_tile(Op op, Gfx arch, DType dtype, int head_dim) {
  const FwdConfig config = forward_config(op, arch, dtype, head_dim);
  const int steps =
      rows_of(op) == Rows::packed ? larger(config.column_blocks, 1) : config.waves / config.slices;
  const int columns = config.narrow_steps
                          ? narrow_columns(traits(arch).unit, config.schedule == Schedule::own_keys)
                          : traits(arch).step_columns;
  return {steps * columns, config.waves * traits(arch).wave};
}

// The reference kernel, fa_reference_*: a wave computes a row.
constexpr FwdTile reference_tile(Gfx arch) { return {1, traits(arch).wave}; }

// Workgroups that share a sequence's rows: enough for every device, and few enough for a grid.
constexpr int reference_blocks(int seqlen_q) { return seqlen_q < 1 << 20 ? seqlen_q : 1 << 20; }

}  // namespace fa
