// The arguments of the backward kernels: plain values, the same bytes on host and device.
#pragma once

#include <stdint.h>

#include "device/call/params.hpp"

namespace fa {

// BwdInput and BwdGradient: an input and an output tensor (batch, rows, heads, head_dim). Strides in
// elements. Ragged batches have no batch stride.

// BwdParams: gradients of attention, passed by value as the only argument of three kernels in sequence.
// Either:
//
//   fa_bwd_delta_*    delta = sum over head_dim of dout * out, for each query
//   fa_bwd_dkdv_*     dk and dv: sums over all queries, and over the heads of q that share a head of k
//   fa_bwd_dq_*       dq
//
// or:
//
//   fa_bwd_delta_*    as above
//   fa_bwd_fused_*    dk and dv, and adds dq up in dq_sums, which is zero before
//   fa_bwd_convert_*  dq from dq_sums
//
// Shapes:
//
//   q, out, dout, dq  (batch, seqlen_q, nheads, head_dim)
//   k, v, dk, dv      (batch, seqlen_k, nheads_k, head_dim)
//   lse, delta        (batch, nheads, seqlen_q) fp32 by lse's strides, rows contiguous. lse comes from the
//                     forward: natural logarithm, +inf for a query without a visible key
//   dq_sums           (nheads, dq_blocks, kSumRows * head_dim) fp32, in the fused kernel's own order
//
// Every gradient element of a sequence is written once; old contents are ignored. cu_seqlens, alibi_slopes,
// window, scale, softcap, dropout and rng_state are the fields of FwdParams (call/params.hpp), with the same
// limits. Pages, padding to the left and numbers of used keys are not supported.
//
// Device pointers and strides are multiples of 8 elements. The last dimension has stride 1. Grids, with z =
// batch and tiles from call/backward_config.hpp:
//
//   delta, convert    x = ceil(seqlen_q / kDeltaRows or kConvertRows), y = nheads
//   dkdv, fused       x = ceil(seqlen_k / block_n), y = nheads_k  (dkdv_tile)
//   dq                x = ceil(seqlen_q / block_m), y = nheads    (dq_tile)
//
// dkdv, fused and dq have x << together and y >> together, and an order of their own.
//
// Delta and convert serve any head dim and read head_dim; for delta it is out's and dout's. The other kernels
// are made for one head dim.
//
// dq_blocks: blocks of kSumRows queries of one head, in dq_sums.

// MaskedBwdParams: the only argument of fa_bwd_dkdv_masked_* and fa_bwd_dq_masked_*, which replace dkdv and
// dq.
//
// bwd has no cu_seqlens, alibi_slopes or softcap. The mask is as in MaskedParams. dscores (batch, nheads,
// seqlen_q, mask_keys(seqlen_k)), fp32, contiguous, or null: dq writes dS there, the gradients of the scores,
// for the tiles it visits. seqlen_k is then below kMaxRowStride. Rows with an lse of +inf or below kFarBelow
// have zero gradients. has_ranges, 0 or 1: fa_mask_ranges_* left the shown keys in dq, and kernels skip tiles
// hidden by the mask (masks/shown_range.hpp).

// Whether a call takes the loop with all features, or the plain one.
constexpr bool featured(const BwdParams& p) {
  return p.alibi_slopes != nullptr || p.softcap != 0 || p.dropout_below != 0;
}

// Queries per block of dq_sums. Blocks of a head, for all sequences, are consecutive.
inline constexpr int32_t kSumRows = 32;

// The blocks of a head. rows_q as in BwdParams. Each sequence has its own blocks, wherever in q it begins.
constexpr int64_t sum_blocks(bool ragged, int64_t batch, int64_t rows_q) {
  return ragged ? rows_q / kSumRows + batch : batch * ((rows_q + kSumRows - 1) / kSumRows);
}

// The first block of a sequence. q_first is its first row of q.
constexpr int64_t first_sum_block(const BwdParams& p, int32_t batch, int32_t q_first) {
  return p.cu_seqlens_q != nullptr ? q_first / kSumRows + batch : sum_blocks(false, batch, p.seqlen_q);
}

// With log-sum-exps below this, of rows with a bias, fp32 is too coarse to recompute probabilities.
inline constexpr float kFarBelow = -131072.0f;

// Queries and threads of a workgroup of delta, and of the conversion of dq_sums: kDeltaRows, kDeltaThreads,
// ...
#define FA_WORKGROUP(op, rows, threads) inline constexpr int32_t k##op##Rows = rows, k##op##Threads = threads;
#include "generated/device/tiles/workgroups.inc"
#undef FA_WORKGROUP

}  // namespace fa
