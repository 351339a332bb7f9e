// The arguments of the kernels: plain values, the same bytes on host and device.
#pragma once

#include <stdint.h>

namespace fa {

// Dense forward attention, passed by value as the only argument of every fa_fwd_* kernel.
//   q, out  (batch, seqlen_q, nheads, head_dim);  k, v  (batch, seqlen_k, nheads_k, head_dim), nheads %
//   nheads_k == 0 lse     (batch, nheads, seqlen_q) fp32 contiguous, natural logarithm; +inf where a query
//   sees no key (out is 0 there)
// Device pointers and strides (in elements) are multiples of 8 elements; the last dimension has stride 1.  k
// and v are not read when seqlen_k is 0.  Row strides are below kMaxRowStride. Grid: x = ceil(seqlen_q /
// block_m), y = nheads, z = batch; block x = threads (fwd_tile in kernel/config.hpp).
struct FwdParams {
  const void* q;
  const void* k;
  const void* v;
  void* out;
  float* lse;
  int64_t q_batch, q_row, q_head;
  int64_t k_batch, k_row, k_head;
  int64_t v_batch, v_row, v_head;
  int64_t o_batch, o_row, o_head;
  int32_t batch, seqlen_q, seqlen_k, nheads, nheads_k;
  float scale;     // softmax_scale; scores are scale * q.k
  int32_t causal;  // 0 or 1, bottom-right aligned: query i sees keys j <= i + seqlen_k - seqlen_q
};

// A tile's rows are addressed with 32 bits from the tile's first: 64 rows of 2-byte elements.
inline constexpr int64_t kMaxRowStride = int64_t{1} << 24;

}  // namespace fa
