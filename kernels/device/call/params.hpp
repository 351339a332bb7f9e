// The arguments of the kernels: plain values, the same bytes on host and device.
#pragma once

#include <stdint.h>

namespace fa {

// The structures, which are generated from tables/calls.toml.
#include "generated/device/structs.inc"

// FwdParams: forward attention, passed by value as the only argument of every fa_fwd_* kernel.
//
//   q, out  (batch, seqlen_q, nheads, head_dim);  k, v (batch, seqlen_k, nheads_k, head_dim); out and v with
//           another head_dim in forward/uneven.hpp
//   lse     (batch, nheads, seqlen_q) fp32 by its strides, rows contiguous, natural logarithm; +inf where a
//           query sees no key (out is 0 there), and where a score is NaN or +inf (out is NaN there)
//
// Ragged batches, each independent of the others; a null pointer turns it off:
//   cu_seqlens_q, cu_seqlens_k (batch + 1)  sequence b has rows cu[b] to cu[b + 1] of q (k, v), whose batch
//                                           stride is 0; seqlen_q is then the longest sequence
//   block_table (batch, table_batch)        key j of a sequence is row j % page of page table[j / page] of
//                                           k and v (num_pages, page, nheads_k, head_dim); k_batch and
//                                           v_batch are the strides of pages; page is a multiple of 16
//   seqused_k (batch)                       keys in use, where fewer than there are
//   leftpad_k (batch)                       the first keys of a sequence, not used; never with block_table
//   cache_batch_idx (batch)                 sequence b's place in k's and v's batch of batch_k; dense only
// Whatever these hold, no address outside of the tensors is touched: lengths and page numbers are cut to
// rows_q, rows_k (rows of q, and of k and v, all sequences together), seqlen_k, batch_k and num_pages.
//
// Scores: scale * q.k, then softcap * tanh(score / softcap) unless softcap is 0, then minus
// alibi_slopes[b * alibi_batch + head] * distance to the diagonal unless alibi_slopes is null.
// The diagonal is aligned to the bottom right corner: query i is at key i + keys - queries.  It sees
// window_left keys before that one and window_right after it; kNoWindow is no bound.
//
// Dropout: of the probability of (batch, head, row, column), row and column counted from the sequence's first
// query and first key in use, the word is number column % 4 of the four that Philox4x32-10 gives for the
// counter (column / 4, row, head, batch) and the key rng_state (2), each below 2^32.  The log-sum-exp is that
// without dropout.
//
// Splits (split-KV), of fa_decode_* only: each part of the keys gives out and log-sum-exp of its own in fp32,
// partial_out (splits, lse's shape, head_dim) and partial_lse (splits, lse's shape).  Where a row sees no key
// of a part its log-sum-exp is -inf, and nothing is written to partial_out.  fa_combine_* combines them.
//
// Device pointers and strides (in elements) are multiples of 8 elements; the last dimension has stride 1.  k
// and v are not read where there are no keys.  Row strides are below kMaxRowStride, lengths at most
// kMaxLength.  Grid: x = ceil(seqlen_q / block_m), y = nheads, z = batch; block x = threads (forward_tile in
// call/config.hpp).  Of fa_decode_*: x = ceil(seqlen_q * nheads / nheads_k / block_m) * splits, y =
// nheads_k, z = batch (forward_tile); seqlen_q * nheads / nheads_k is at most kMaxLength.
// Order, of fa_fwd_* where the arch's die_units is not 0: if dies is above 1, a workgroup computes what
// order.hpp says, and die_each and die_more are the number of the grid's workgroups, divided by dies, and the
// remainder.
//
// partial_split is in elements of lse: from one split's part of partial_lse to the next's.  seqlen_q and
// seqlen_k are the most queries and keys of a sequence.  splits: parts that the keys of a sequence are cut
// into; 1: none.  scale is softmax_scale.  A probability is dropped when its word is below dropout_below, 0:
// no dropout; dropout_scale, 1 / (1 - dropout_p), is that of the probabilities that are kept.

// MaskedParams: the only argument of every fa_fwd_masked_* kernel: fwd, which has none of the tensors that
// are optional but rng_state, and no softcap, and a mask (batch, nheads, seqlen_q, seqlen_k) by its strides,
// 0 where it is the same for all.  mask_kind, a MaskKind: what an element is.  Bytes are 0, which hides the
// key, or 1; other elements are added to the score, and -inf hides the key.  Rows are contiguous and have
// mask_keys(seqlen_k) elements; the address, in elements, and the strides are multiples of kAlignedElements,
// and mask_row is below kMaxRowStride.  A window hides keys besides.  Grid and block as of fa_fwd_*.
//
// Where has_ranges says so, fa_mask_ranges_* come first and leave what the mask shows in out
// (shown_keys.hpp).
//
// A finite bias below -1e30 counts as -1e30 where products start from the softmax's shift, and a positive
// softmax_scale below kLeastScale is not taken.

// MaskRangesParams: the only argument of every fa_mask_ranges_* kernel: a mask and out as in MaskedParams,
// and the number of sequences.  An element of the mask has 1 << shift bytes, 1 or 2.  One that hides a key is
// 0, or -inf of the tensors' type, and `hidden` is as many of these as fill it.  Grid: x = ceil(seqlen_q /
// mask_rows), y = nheads, z = batch, each 1 where the mask's stride is 0; block x = kMaskRangesThreads
// (call/config.hpp).

// AppendTensor: what fa_append_* moves, rows of q to their rotated copy, rows of k and v into the caches.
// Of a paged cache to_batch is the stride of pages.

// AppendParams: writing new keys and values into a cache, in place, the only argument of every fa_append_*
// kernel.
//
//   q     (batch, rows_q, nheads, head_dim) to the same shape; null pointers where q is not rotated
//   k, v  (batch, rows_new, nheads_k, head_dim) to dense (batch_cache, capacity, nheads_k, head_dim)
//         caches, or pages (batch_cache, page, nheads_k, head_dim); capacity is then table pages * page
//
// New key i of sequence b gets position cache_seqlens[b] + i: row of the cache's place b, or
// cache_batch_idx[b] where given, or row position % page of page block_table[position / page] where given.
// Padding to the left of the keys changes nothing: positions count from the cache's first row.
//
// Rotation, unless cos is null: pairs of the first 2 * rotary_half elements of k, which are neighbours when
// interleaved, else element j and j + rotary_half, by the angle j of row `position` of cos and sin
// (rotary_rows, rotary_half).  Likewise q's row i, at position cache_seqlens[b] + (advances ? i : 0).  In
// fp32 without fused multiply-adds, rounded once to nearest even; other elements keep their bits.
//
// Values in device memory are not trusted: a key whose position, page or place is not in the cache is not
// written, and a position beyond rotary_rows takes the last row, one before 0 the first.
//
// Strides in elements, of any sign; the last dimension has stride 1.  `vectors`: all pointers are multiples
// of 16 bytes, and all strides, head_dim and rotary_half multiples of 8 elements.  rows * heads is at most
// kMaxLength.  Grid: x = blocks, any number from 1 on, y = batch, z = 2 (k, v) or 3 (k, v, q); block x =
// kAppendThreads.
//
// tensors are k, v and q.  page 0: dense.  interleaved, advances and vectors are 0 or 1.

inline constexpr int32_t kAppendThreads = 256;
inline constexpr int32_t kAppendWidth = 8;  // elements that are moved at once where `vectors`

// Threads that move a head's row, each twice `width` elements.
constexpr int32_t append_units(int32_t head_dim, int32_t width) {
  return (head_dim + 2 * width - 1) / (2 * width);
}

// ReferenceParams: forward attention, the only argument of every fa_reference_* kernel.  Head dims from 1 to
// kMaxHeadDim; pointers and strides are multiples of one element, the last dimension has stride 1, and there
// is no bound on row strides.  Keys are not cut into parts.  Grid: x = blocks, which go through the rows, y =
// nheads, z = batch; block x = threads (reference_tile in call/config.hpp).

// CombineParams: the only argument of every fa_combine_* kernel: out and lse of the rows of a FwdParams whose
// keys were cut into parts, from what the parts gave.  Fields as there; head_dim is a multiple of 4 and at
// most 4 * kCombineThreads. Grid: x = seqlen_q, y = nheads, z = batch; block x = kCombineThreads
// (call/config.hpp).

// Whether a call takes the loop that has all features, or the plain one.
constexpr bool featured(const FwdParams& p) {
  return p.alibi_slopes != nullptr || p.softcap != 0 || p.block_table != nullptr || p.dropout_below != 0;
}

inline constexpr int32_t kNoWindow = -1;

// What an element of a mask is: bool, one of the tensors' type, fp32.
enum class MaskKind : int32_t { bytes, elements, fp32 };

// Whether fa_mask_ranges_* find what a mask shows.  To look at a bias takes as long as to add it, so only one
// that heads or rows share is looked at.
constexpr bool has_ranges(int32_t mask_kind, int64_t mask_head, int64_t mask_row) {
  const auto kind = static_cast<MaskKind>(mask_kind);
  return kind == MaskKind::bytes || (kind == MaskKind::elements && (mask_head == 0 || mask_row == 0));
}

// Biases are divided by softmax_scale.
inline constexpr float kLeastScale = 1e-6f;

// The largest head dim of kernels with all features, and of any kernel (forward/wide.hpp).
inline constexpr int32_t kMaxHeadDim = 256;
inline constexpr int32_t kMaxWideHeadDim = 512;

// The head dim of v, and of out, in kernels where it is another one than that of q and k
// (forward/uneven.hpp): DeepSeek V2's and V3's.
inline constexpr int32_t kUnevenHeadDim = 192;
inline constexpr int32_t kUnevenValueDim = 128;

// Multi-head latent attention: the head dim of V, the first elements of K, which has kLatentRest more.
inline constexpr int32_t kLatentRest = 64;
constexpr int32_t mla_value_dim(int32_t head_dim) { return head_dim - kLatentRest; }

// Parts that the keys of a sequence may be cut into: 32768 keys of one head, in the shortest parts of an
// automatic choice, fill the largest device.
inline constexpr int64_t kMaxSplits = 512;

// Pointers and strides of the kernels for one head dim are multiples of this many elements.
inline constexpr int64_t kAlignedElements = 8;

// Rows of a page of a paged cache are a multiple of this.
inline constexpr int64_t kPageMultiple = 16;

// The elements of a mask's row, those for keys that are not there included.
constexpr int32_t mask_keys(int64_t seqlen_k) {
  return static_cast<int32_t>((seqlen_k + kAlignedElements - 1) / kAlignedElements * kAlignedElements);
}

// A tile's rows are addressed with 32 bits from the tile's first: 64 rows of 2-byte elements.
inline constexpr int64_t kMaxRowStride = int64_t{1} << 24;

// Sums of two lengths, or of a length and a window, and a block of rows are 32 bits wide.
inline constexpr int64_t kMaxLength = (int64_t{1} << 30) - 4096;

}  // namespace fa
