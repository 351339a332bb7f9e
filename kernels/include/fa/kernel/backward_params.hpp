// The arguments of the backward kernels: plain values, the same bytes on host and device.
#pragma once

#include <stdint.h>

#include "fa/kernel/params.hpp"

namespace fa {

// A tensor (batch, rows, heads, head_dim) that is read, and one that is written.  Strides in elements; ragged
// batches have no batch stride.
struct BwdInput {
  const void* data;
  int64_t batch, row, head;
};
struct BwdGradient {
  void* data;
  int64_t batch, row, head;
};

// Gradients of attention, passed by value as the only argument of the three kernels that compute them, in
// this order:
//
//   fa_bwd_delta_*  delta = sum over head_dim of dout * out, for each query
//   fa_bwd_dkdv_*   dk and dv, which are sums over all queries, and over the heads of q that share a head of
//   k fa_bwd_dq_*     dq
//
//   q, out, dout, dq  (batch, seqlen_q, nheads, head_dim);  k, v, dk, dv (batch, seqlen_k, nheads_k,
//   head_dim) lse, delta        (batch, nheads, seqlen_q) fp32 by lse's strides, rows contiguous; lse is that
//   of the
//                     forward: natural logarithm, +inf where a query sees no key
//
// Every element of a gradient that belongs to a sequence is written, once; nothing is added to what was
// there. cu_seqlens, alibi_slopes, window, scale, softcap, dropout and rng_state are those of FwdParams
// (kernel/params.hpp), and so are the limits.  There are no pages, no padding to the left, and no numbers of
// keys in use.
//
// Device pointers and strides are multiples of 8 elements; the last dimension has stride 1.  Grids: of delta
// x = ceil(seqlen_q / kDeltaRows), y = nheads, z = batch; of dkdv x = ceil(seqlen_k / block_n), y = nheads_k,
// z = batch (dkdv_tile in kernel/backward_config.hpp); of dq x = ceil(seqlen_q / block_m), y = nheads, z =
// batch (dq_tile).  head_dim is read by delta only; the others are made for one.
struct BwdParams {
  BwdInput q, k, v, out, dout;
  BwdGradient dq, dk, dv;
  const float* lse;
  float* delta;
  const float* alibi_slopes;
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;
  const int64_t* rng_state;
  int64_t lse_batch, lse_head;
  int64_t alibi_batch;
  int32_t seqlen_q, seqlen_k;  // most queries and keys of a sequence
  int32_t rows_q, rows_k;
  int32_t nheads, nheads_k;
  int32_t window_left, window_right;
  int32_t head_dim;
  float scale;  // softmax_scale
  float softcap;
  uint32_t dropout_below;  // a probability is dropped when its word is below this; 0: no dropout
  float dropout_scale;     // 1 / (1 - dropout_p)
};

// Whether a call takes the loop that has all features, or the plain one.
constexpr bool featured(const BwdParams& p) {
  return p.alibi_slopes != nullptr || p.softcap != 0 || p.dropout_below != 0;
}

// Threads of a workgroup of delta, and the queries that it takes.
inline constexpr int32_t kDeltaThreads = 256;
inline constexpr int32_t kDeltaRows = 64;

}  // namespace fa
