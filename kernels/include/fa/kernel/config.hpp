// How a kernel divides its work, per arch, dtype and head dim: the one decision that the kernel, its
// launch bounds and the host's launch share.  Host and device.
#pragma once

#include "fa/arch/dtype.hpp"
#include "fa/arch/traits.hpp"
#include "fa/mma/layout.hpp"

namespace fa {

// Head dims that the forward kernel is written for; instances/generate.py reads them here.
inline constexpr int kFwdHeadDims[] = {32, 64, 96, 128, 192, 256};

// What the columns of a workgroup are: queries of one head, or, for decode, queries of all heads of q that
// share a head of k and v.  Packed row r is head r % group of query r / group.
enum class Rows { queries, packed };

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
  // Fewer instructions outside of the products, for LDS (padded tiles) and registers (values kept twice).
  bool lean = false;
  // Matrix steps that operands are read before they are needed, while K is replaced as soon as the first
  // product is done with it and V during that product; 0: as the compiler likes, and both at once.
  int early = 0;
};

// `featured`: of the loop that has all features; waves and their queries are those of the plain one.
constexpr FwdConfig fwd_config(Gfx arch, DType dtype, int head_dim, bool featured = false) {
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
      const bool lean = head_dim != 96;  // whose loop it would cost a wave
      if (featured && head_dim > 32 && !large) return {8, head_dim > 64 ? 16 : 32, 6, steps, true, 0, lean};
      if (head_dim == 64) return {8, 32, 10, steps, false, 0, true, 1};
      if (!large) return {8, head_dim > 64 ? 32 : 64, 6, steps, featured, 0, lean, lean && !featured ? 1 : 0};
      if (head_dim <= 192) return {8, 16, 1, featured ? 4 : 6, false, 4};
      return {8, 16, 1, 5, true, 0};
    }
    case MatrixUnit::dot2: {
      // Head dim 32 would lose a wave, bf16 of 128 spill.
      const bool lean = head_dim > 32 && (head_dim < 128 || dtype == DType::fp16);
      if (!large) return {8, head_dim > 64 ? 32 : 64, 4, 0, featured, 0, lean};
      return {head_dim > 192 ? 4 : 8, 16, 1, 0, true, head_dim > 192 ? 1 : 0};
    }
  }
  return {};
}

// Tuning of the decode kernel, whose workgroup has one step's columns of rows: each wave computes all scores
// of a tile, and its own part of head_dim of the output.  Few waves repeat less, many hold less and hide
// more.
constexpr FwdConfig decode_config(Gfx arch, DType dtype, int head_dim, bool featured = false) {
  const int keys = head_dim <= 64 ? 64 : 32;
  const bool large = head_dim > 128;
  switch (traits(arch).unit) {
    case MatrixUnit::mfma: {
      const int steps = head_dim / Layout<MatrixUnit::mfma>::kK;
      if (head_dim == 256) return {4, keys, traits(arch).separate_accumulators ? 1 : 2, steps, featured, 0};
      const bool slow = traits(arch).bf16_k == 4 && head_dim == 128;
      return {slow ? 2 : head_dim / 32, keys, 2, steps, featured, 0};
    }
    case MatrixUnit::wmma: {
      const int steps = head_dim / Layout<MatrixUnit::wmma>::kK;
      if (large) return {head_dim / 32, 16, 4, steps / 2, featured, 4};
      return {head_dim / 32, 32, 4, steps, featured, head_dim > 96 ? 4 : 0};
    }
    case MatrixUnit::dot2: {
      // Unpacked bf16 scores take as long as memory does where four waves repeat them.
      const bool halved = dtype == DType::bf16 && head_dim >= 128;
      return {head_dim / (halved ? 64 : 32), 32, halved ? 2 : 4, 0, featured, 4};
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

// The plain kernel, fa_reference_*: a wave computes a row.
inline constexpr int kReferenceHeadDim = 256;

constexpr FwdTile reference_tile(Gfx arch) { return {1, traits(arch).wave}; }

// Workgroups that go through a sequence's rows: enough for every device, and few enough for a grid.
constexpr int reference_blocks(int seqlen_q) { return seqlen_q < 1 << 20 ? seqlen_q : 1 << 20; }

constexpr FwdTile decode_tile(Gfx arch, DType dtype, int head_dim) {
  const int waves = decode_config(arch, dtype, head_dim).waves;
  switch (traits(arch).unit) {
    case MatrixUnit::mfma: return {Layout<MatrixUnit::mfma>::kN, waves * Layout<MatrixUnit::mfma>::kWave};
    case MatrixUnit::wmma: return {Layout<MatrixUnit::wmma>::kN, waves * Layout<MatrixUnit::wmma>::kWave};
    case MatrixUnit::dot2: return {Layout<MatrixUnit::dot2>::kN, waves * Layout<MatrixUnit::dot2>::kWave};
  }
  return {};
}

}  // namespace fa
