// How calls are computed.  Of forward calls:
//
//   matrix     fa_fwd_* on matrix instructions
//   tiled      fa_fwd_* on an arch that has none
//   split      split-KV, fa_decode_*: few queries, the heads that share keys packed, the keys cut into parts
//   reference  fa_reference_*: any head dim, strides and alignment
//   tall       fa_fwd_tall_*: workgroups of twice the rows, which load half of the bytes; long sequences
//   wide       fa_fwd_wide_*: head dims above 256, which waves divide; without features
//   uneven     fa_fwd_uneven_*: v of another head dim than q and k; without features
//
// Of gradients:
//
//   separate   fa_bwd_dkdv_* and fa_bwd_dq_*: the same bits every time
//   fused      fa_bwd_fused_* and fa_bwd_convert_*: one pass, dq added up with atomics
#pragma once

#include <string_view>

namespace fa {

#include "generated/host/paths.inc"

}  // namespace fa
