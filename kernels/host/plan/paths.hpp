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
//
// Of gradients:
//
//   separate   a kernel for dk and dv, and one for dq: the same bits every time
//   fused      one pass, dq added up with atomics
#pragma once

#include <string_view>

#include "device/call/config.hpp"

namespace fa {

#include "generated/host/paths.inc"

}  // namespace fa
