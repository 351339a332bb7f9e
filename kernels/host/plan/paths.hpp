// How calls are computed, and the kernels that answer them: tables/kinds.toml.
//
//   matrix     on matrix instructions
//   tiled      on an arch that has none
//   split      split-KV: few queries, the heads that share keys packed, the keys cut into parts
//   reference  any head dim, strides and alignment
//   tall       workgroups of twice the rows, which load half of the bytes; long sequences
//   wide       head dims above 256, which waves divide; without features
//   uneven     v of another head dim than q and k; without features
//   latent     multi-head latent attention
//   fp8        products of fp8, of q, k and v in fp8; without features
//   int8       products of int8 and fp8, after quantising q, k and v; without features
//
// Of gradients:
//
//   separate   a kernel for dk and dv, and one for dq: the same bits every time
//   fused      one pass, dq added up with atomics
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "device/call/config.hpp"

namespace fa {

#include "generated/host/paths.inc"

// Some of the ops.
struct OpSet {
  std::uint32_t bits = 0;

  constexpr bool has(Op op) const { return (bits >> static_cast<int>(op) & 1) != 0; }
  constexpr void add(Op op) { bits |= std::uint32_t{1} << static_cast<int>(op); }
};

// What k, v and the mask of a forward are, where its path does not tell the kernels.
struct Reads {
  bool masked;  // an attn_mask
  bool coded;   // k and v of 8 bits
};

// The kernels of a forward.
constexpr Op op_of(Path path, Reads reads) {
  return reads.masked ? op_of(Variant::masked) : reads.coded ? op_of(Variant::coded) : op_of(path);
}

// The kernels of latent attention. `coded`: over a cache of 8 bits. `scaled`: over rows that hold their
// scales.
constexpr Op latent_op(bool coded, bool scaled) {
  return scaled ? op_of(Variant::packed_latent) : coded ? op_of(Variant::coded_latent) : op_of(Path::latent);
}

}  // namespace fa
