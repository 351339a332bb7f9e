// How a kernel divides its work, per arch, dtype and head dim: the one decision that the kernel, its
// launch bounds and the host's launch share.  Host and device.
#pragma once

#include "fa/arch/dtype.hpp"
#include "fa/arch/traits.hpp"
#include "fa/kernel/params.hpp"
#include "fa/mma/layout.hpp"

namespace fa {

// What the columns of a workgroup are: queries of one head, or, for decode, queries of all heads of q that
// share a head of k and v.  Packed row r is head r % group of query r / group.
enum class Rows { queries, packed };

constexpr int larger(int a, int b) { return a > b ? a : b; }

// Head dims that the forward kernel can be instantiated for.  Which of them there are kernels for is decided
// in instances/table.toml alone.
constexpr bool is_fwd_head_dim(int head_dim) {
  return head_dim > 0 && head_dim <= kMaxHeadDim && head_dim % (head_dim > 128 ? 64 : 32) == 0;
}

// When K and V move into LDS while tiles are computed (kernel/schedule.hpp).
enum class Schedule {
  two_stages,  // the next K and V are loaded during a tile, into registers of their own
  one_stage,   // K and V share registers: fewer, and less time to hide latency
  pipelined,   // as two_stages; K is replaced right after the first product, V during it
};

// Tuning of the forward kernel.  Changes speed, registers and LDS, never results.
struct FwdConfig {
  int waves;            // waves of a workgroup; each has one step's columns of queries
  int keys;             // keys of a K/V tile
  int waves_per_simd;   // what the compiler must leave registers for
  int query_steps = 0;  // steps of Q held in registers; the others are in LDS
  Schedule schedule = Schedule::two_stages;
  int steps_at_once = 0;  // matrix steps whose operands the compiler may load at once; 0: no limit
  int prefetch = 0;       // matrix steps that operands are read ahead of their use; 0: as the compiler likes
  int value_lanes = 1;    // neighbouring lanes that turn V of the same head_dim, each 4 keys of its own: more
                          // of them store to more banks of LDS, and read shorter runs of each row of V

  // Each saves instructions outside of the products, for LDS or registers.
  bool padded_tiles = false;  // LDS rows are padded, not permuted: one address for all of a lane's units
  bool dual_issue = false;    // softmax keeps values twice, so that instructions can be issued in pairs
  bool scalar_scale = false;  // sign and zero of softmax_scale are tested in scalar registers
  bool identity_shortcuts = false;  // without GQA no division, without cache_batch_idx no lookup
  bool buffer_stores = false;       // out and lse are stored through buffer resources, by 32-bit offsets
  bool half_stores = false;  // 16-bit stores turn V: four times the LDS instructions, and none of the VALU
};

// `config` with all of these, if `yes`: head dims up to 128 on RDNA that have LDS and registers to spare.
constexpr FwdConfig with_savings(FwdConfig config, bool yes) {
  config.padded_tiles = config.dual_issue = config.scalar_scale = yes;
  config.identity_shortcuts = config.buffer_stores = yes;
  return config;
}

// ROCm 6.4's compiler needs more registers for the same: with as many waves on gfx942 it would spill.
#if defined(__clang_major__) && __clang_major__ < 22
inline constexpr bool kFewRegisters = false;
#else
inline constexpr bool kFewRegisters = true;
#endif

constexpr FwdConfig fwd_config_mfma(ArchTraits traits, int head_dim, bool featured) {
  const bool separate = traits.separate_accumulators;
  const int steps = head_dim / Layout<MatrixUnit::mfma>::kK;
  if (head_dim <= 128) {
    // Short tiles leave registers for one wave more, which hides more than long ones do.
    const bool more = !separate && head_dim != 32;
    const bool tight = more && head_dim == 128;  // the featured loop would spill
    return {.waves = 4,
            .keys = separate || more ? 32 : 64,
            .waves_per_simd = (head_dim <= 64 ? 3 : 2) + (more && head_dim != 96 && kFewRegisters),
            .query_steps = tight && featured ? steps - 1 : steps,
            .schedule = featured                ? Schedule::one_stage
                        : more || head_dim > 96 ? Schedule::pipelined
                                                : Schedule::two_stages,
            .value_lanes = 2,
            .identity_shortcuts = true};
  }
  if (separate && head_dim > 192) {
    return {.waves = 4,
            .keys = 32,
            .waves_per_simd = 1,
            .query_steps = steps,
            .schedule = Schedule::one_stage,
            .value_lanes = 4};
  }
  return {.waves = 8,
          .keys = 32,
          .waves_per_simd = 2,
          .query_steps = head_dim > 192 ? 12 : 8,
          .schedule = Schedule::one_stage,
          .value_lanes = 2};
}

constexpr FwdConfig fwd_config_wmma(int head_dim, bool featured) {
  const int steps = head_dim / Layout<MatrixUnit::wmma>::kK;
  if (head_dim > 192) {
    return {.waves = 8, .keys = 16, .waves_per_simd = 1, .query_steps = 5, .schedule = Schedule::one_stage};
  }
  if (head_dim > 128) {
    return {.waves = 8, .keys = 16, .waves_per_simd = 1, .query_steps = featured ? 4 : 6, .steps_at_once = 4};
  }
  const bool saves = head_dim != 96;  // it would cost the loop of 96 a wave
  if (featured) {
    const int keys = head_dim > 64 ? 16 : head_dim > 32 ? 32 : 64;
    return with_savings({.waves = 8,
                         .keys = keys,
                         .waves_per_simd = 6,
                         .query_steps = steps,
                         .schedule = Schedule::one_stage,
                         .half_stores = saves},
                        saves);
  }
  if (!saves) {
    return {.waves = 8, .keys = 32, .waves_per_simd = 6, .query_steps = steps, .value_lanes = 2};
  }
  // Lanes that store V to other banks: no bank is needed by more than two of a phase.
  return with_savings({.waves = 8,
                       .keys = head_dim > 32 ? 32 : 64,
                       .waves_per_simd = head_dim == 64 ? 10 : 6,
                       .query_steps = steps,
                       .schedule = Schedule::pipelined,
                       .prefetch = 1,
                       .value_lanes = head_dim <= 64 ? 8 : 4,
                       .half_stores = head_dim <= 64},
                      true);
}

constexpr FwdConfig fwd_config_dot2(DType dtype, int head_dim, bool featured) {
  if (head_dim > 192) {
    return {.waves = 4, .keys = 16, .waves_per_simd = 1, .schedule = Schedule::one_stage, .steps_at_once = 1};
  }
  if (head_dim > 128) {
    return {.waves = 8, .keys = 16, .waves_per_simd = 1, .schedule = Schedule::one_stage};
  }
  // Head dim 32 would lose a wave.  bf16 of 128 is short of registers: its featured loop would spill, and in
  // its plain loop the compiler would put all loads before the first product.
  const bool tight = head_dim == 128 && dtype == DType::bf16;
  FwdConfig config = with_savings({.waves = 8,
                                   .keys = head_dim > 64 ? 32 : 64,
                                   .waves_per_simd = 4,
                                   .schedule = featured ? Schedule::one_stage : Schedule::two_stages,
                                   .steps_at_once = tight && !featured ? 4 : 0,
                                   .value_lanes = head_dim == 128 ? 8 : 1},
                                  head_dim > 32 && !(tight && featured));
  if (tight) config.dual_issue = false;
  return config;
}

// `featured`: of the loop that has all features; waves and their queries are those of the plain one.
constexpr FwdConfig fwd_config(Gfx arch, DType dtype, int head_dim, bool featured = false) {
  switch (traits(arch).unit) {
    case MatrixUnit::mfma: return fwd_config_mfma(traits(arch), head_dim, featured);
    case MatrixUnit::wmma: return fwd_config_wmma(head_dim, featured);
    case MatrixUnit::dot2: return fwd_config_dot2(dtype, head_dim, featured);
  }
  return {};
}

// Tuning of the decode kernel, whose workgroup has one step's columns of rows: each wave computes all scores
// of a tile, and its own part of head_dim of the output.  Few waves repeat less work; many hold less each and
// hide more latency.
constexpr FwdConfig decode_config(Gfx arch, DType dtype, int head_dim, bool featured = false) {
  const Schedule schedule = featured ? Schedule::one_stage : Schedule::two_stages;
  switch (traits(arch).unit) {
    case MatrixUnit::mfma: {
      const bool slow = traits(arch).bf16_k == 4 && head_dim == 128;
      const bool whole = head_dim == 256 && traits(arch).separate_accumulators;
      return {.waves = slow              ? 2
                       : head_dim == 256 ? 4
                                         : head_dim / 32,
              .keys = head_dim <= 64 ? 64 : 32,
              .waves_per_simd = whole ? 1 : 2,
              .query_steps = head_dim / Layout<MatrixUnit::mfma>::kK,
              .schedule = schedule,
              .value_lanes = slow || head_dim == 256 ? 4 : 2};
    }
    case MatrixUnit::wmma: {
      const bool large = head_dim > 128;
      const int steps = head_dim / Layout<MatrixUnit::wmma>::kK;
      return {.waves = head_dim / 32,
              .keys = large ? 16 : 32,
              .waves_per_simd = 4,
              .query_steps = large ? steps / 2 : steps,
              .schedule = schedule,
              .steps_at_once = head_dim > 96 ? 4 : 0};
    }
    case MatrixUnit::dot2: {
      // Scores of unpacked bf16 take as long as memory does where four waves repeat them.
      const bool halved = dtype == DType::bf16 && head_dim > 128;
      return {.waves = head_dim / (halved ? 64 : 32),
              .keys = 32,
              .waves_per_simd = halved ? 2 : 4,
              .schedule = schedule,
              .steps_at_once = 4};
    }
  }
  return {};
}

// Threads of a workgroup of the kernel that joins the parts of a decode.
inline constexpr int kCombineThreads = 256;

// Rows of queries (packed ones for decode) and threads of one workgroup.
struct FwdTile {
  int block_m;
  int threads;
};

constexpr int step_columns(MatrixUnit unit) {
  switch (unit) {
    case MatrixUnit::mfma: return Layout<MatrixUnit::mfma>::kN;
    case MatrixUnit::wmma: return Layout<MatrixUnit::wmma>::kN;
    case MatrixUnit::dot2: return Layout<MatrixUnit::dot2>::kN;
  }
  return 0;
}

constexpr FwdTile fwd_tile(Gfx arch, DType dtype, int head_dim) {
  const int waves = fwd_config(arch, dtype, head_dim).waves;
  return {waves * step_columns(traits(arch).unit), waves * traits(arch).wave};
}

constexpr FwdTile decode_tile(Gfx arch, DType dtype, int head_dim) {
  const int waves = decode_config(arch, dtype, head_dim).waves;
  return {step_columns(traits(arch).unit), waves * traits(arch).wave};
}

// The reference kernel, fa_reference_*: a wave computes a row.
constexpr FwdTile reference_tile(Gfx arch) { return {1, traits(arch).wave}; }

// Workgroups that go through a sequence's rows: enough for every device, and few enough for a grid.
constexpr int reference_blocks(int seqlen_q) { return seqlen_q < 1 << 20 ? seqlen_q : 1 << 20; }

}  // namespace fa
