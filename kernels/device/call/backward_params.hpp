// The arguments of the backward kernels: plain values, the same bytes on host and device.
#pragma once

#include <stdint.h>

#include "device/call/params.hpp"

namespace fa {

// BwdInput and BwdGradient: a tensor (batch, rows, heads, head_dim) that is read, and one that is written.
// Strides in elements; ragged batches have no batch stride.

// BwdParams: gradients of attention, passed by value as the only argument of the three kernels that compute
// them, in one of these orders:
//
//   fa_bwd_delta_*    delta = sum over head_dim of dout * out, for each query
//   fa_bwd_dkdv_*     dk and dv: sums over all queries, and over the heads of q that share a head of k
//   fa_bwd_dq_*       dq
//
//   fa_bwd_delta_*    as above
//   fa_bwd_fused_*    dk and dv, and adds dq up in dq_sums, which is zero before
//   fa_bwd_convert_*  dq from dq_sums
//
// Shapes:
//
//   q, out, dout, dq  (batch, seqlen_q, nheads, head_dim)
//   k, v, dk, dv      (batch, seqlen_k, nheads_k, head_dim)
//   lse, delta        (batch, nheads, seqlen_q) fp32 by lse's strides, rows contiguous; lse is that of the
//                     forward: natural logarithm, +inf where a query sees no key
//   dq_sums           (nheads, dq_blocks, kSumRows * head_dim) fp32, in the fused kernel's own order
//
// Every element of a gradient that belongs to a sequence is written, once; nothing is added to what was
// there.  cu_seqlens, alibi_slopes, window, scale, softcap, dropout and rng_state are those of FwdParams
// (call/params.hpp), and so are the limits.  There are no pages, no padding to the left, and no numbers of
// keys in use.
//
// Device pointers and strides are multiples of 8 elements; the last dimension has stride 1.  Grids, with
// z = batch (tiles are those of call/backward_config.hpp):
//
//   delta, convert    x = ceil(seqlen_q / kDeltaRows or kConvertRows), y = nheads
//   dkdv, fused       x = ceil(seqlen_k / block_n), y = nheads_k  (dkdv_tile)
//   dq                x = ceil(seqlen_q / block_m), y = nheads    (dq_tile)
//
// Kernels for any head dim, delta and convert, read head_dim, which for delta is that of out and dout; the
// others are made for one.
//
// dq_blocks: blocks of kSumRows queries of one head, in dq_sums.

// MaskedBwdParams: the only argument of fa_bwd_dkdv_masked_* and fa_bwd_dq_masked_*, which come in the places
// of dkdv and dq: bwd, which has no cu_seqlens, alibi_slopes nor softcap, and the mask of
// MaskedParams. dscores (batch, nheads, seqlen_q, mask_keys(seqlen_k)), fp32, contiguous, or null: where dq
// writes dS, the gradients of the scores, of those tiles that it visits.  seqlen_k is then below
// kMaxRowStride.
//
// Rows whose lse is +inf or below kFarBelow have no gradients.

// Whether a call takes the loop that has all features, or the plain one.
constexpr bool featured(const BwdParams& p) {
  return p.alibi_slopes != nullptr || p.softcap != 0 || p.dropout_below != 0;
}

// dq_sums has blocks of so many queries: each head's, of all sequences, one after the other.
inline constexpr int32_t kSumRows = 32;

// The blocks of a head; rows_q is that of BwdParams.  Each sequence has blocks of its own, wherever in q it
// begins.
constexpr int64_t sum_blocks(bool ragged, int64_t batch, int64_t rows_q) {
  return ragged ? rows_q / kSumRows + batch : batch * ((rows_q + kSumRows - 1) / kSumRows);
}

// The first block of a sequence, which begins with row q_first of q.
constexpr int64_t first_sum_block(const BwdParams& p, int32_t batch, int32_t q_first) {
  return p.cu_seqlens_q != nullptr ? q_first / kSumRows + batch : sum_blocks(false, batch, p.seqlen_q);
}

// Log-sum-exps below this, of rows with a bias, are too coarse in fp32 for probabilities to be recomputed.
inline constexpr float kFarBelow = -131072.0f;

// Queries and threads of a workgroup of delta, and of the conversion of dq_sums: kDeltaRows, kDeltaThreads,
// ...
#define FA_WORKGROUP(op, rows, threads) inline constexpr int32_t k##op##Rows = rows, k##op##Threads = threads;
#include "generated/device/tiles/workgroups.inc"
#undef FA_WORKGROUP

}  // namespace fa
