// The arguments of the kernels: plain values, the same bytes on host and device.
#pragma once

#include <stdint.h>

namespace fa {

// The structures, generated from tables/calls.toml.
#include "generated/device/structs.inc"

// Divisor: divides by number (call/order.hpp).

// LaunchOrder: the work of a launch's workgroups (call/order.hpp). Zeros: the hardware's own order. 1 <<
// together heads start their blocks in turn; in_turn is (1 << together) - 1. For a non-zero die_units, and
// dies above 1, dies get whole runs of workgroups. die_each and die_more are the quotient and remainder of
// the grid's workgroups divided by dies, row and groups the grid's width and height. flip -1, past the number
// of blocks: the last block starts first. flip and past 0: the first.

// FwdParams: forward attention, passed by value as the only argument of every fa_fwd_* kernel.
//
//   q, out  (batch, seqlen_q, nheads, head_dim);  k, v (batch, seqlen_k, nheads_k, head_dim); out and v with
//           another head_dim in forward/uneven.hpp
//   lse     (batch, nheads, seqlen_q) fp32 by its strides, rows contiguous, natural logarithm. +inf for a
//           query without a visible key (out is 0) or with a score of NaN or +inf (out is NaN)
//
// Ragged batches and caches. Each of these is optional (null) and independent of the others:
//   cu_seqlens_q, cu_seqlens_k (batch + 1)  sequence b has rows cu[b] to cu[b + 1] of q (k, v), whose batch
//                                           stride is 0. seqlen_q is then the longest sequence
//   block_table (batch, table_batch)        key j of a sequence is row j % page of page table[j / page] of
//                                           k and v (num_pages, page, nheads_k, head_dim). k_batch and
//                                           v_batch are the strides of pages. page is a multiple of 16
//   seqused_k (batch)                       keys in use, if fewer than stored
//   leftpad_k (batch)                       number of unused first keys of a sequence; excludes block_table
//   cache_batch_idx (batch)                 sequence b's index in k's and v's batch of batch_k; dense only
// Any values are safe: lengths and page numbers are clamped to rows_q, rows_k (rows of q, and of k and v, all
// sequences together), seqlen_k, batch_k and num_pages, so every access stays inside the tensors.
//
// Scores: scale * q.k, then softcap * tanh(score / softcap) unless softcap is 0, then minus
// alibi_slopes[b * alibi_batch + head] * distance to the diagonal unless alibi_slopes is null.
// The diagonal is aligned to the bottom right corner: query i is at key i + keys - queries. It sees
// window_left keys before this key and window_right after it. kNoWindow: unbounded.
//
// Dropout of the probability of (batch, head, row, column), with row and column counted from the sequence's
// first query and first used key. Its word is number column % 4 of the four from Philox4x32-10 for the
// counter (column / 4, row, head, batch) and the key rng_state (2), each below 2^32. The log-sum-exp ignores
// dropout.
//
// sink (nheads), or null: the score, without softmax_scale, of one more key of a head's rows, whose value is
// 0. It counts in out and lse. Rows without a visible key keep out 0 and lse +inf.
//
// Splits (split-KV), fa_decode_* only: each part of the keys gives its own out and log-sum-exp in fp32,
// partial_out (splits, lse's shape, head_dim) and partial_lse (splits, lse's shape). For a row without a
// visible key in a part, its log-sum-exp is -inf and its partial_out stays unwritten. fa_combine_* combines
// the parts.
//
// Device pointers and strides (in elements) are multiples of 8 elements. The last dimension has stride 1. k
// and v are not read if there are no keys. Row strides are below kMaxRowStride, lengths at most kMaxLength.
// Grid: x = ceil(seqlen_q / block_m) << together, y = nheads >> together, z = batch; block x = threads
// (forward_tile in call/config.hpp). fa_decode_*: x = ceil(seqlen_q * nheads / nheads_k / block_m) * splits,
// y = nheads_k, z = batch (forward_tile); seqlen_q * nheads / nheads_k is at most kMaxLength.
// The first 64 words are what a plain kernel needs before its loop: four loads. rare: rare_in() of the other
// arguments. order: of fa_fwd_*.
//
// partial_split: elements of lse between the parts of partial_lse. seqlen_q and seqlen_k: the most queries
// and keys of a sequence. splits: number of parts of a sequence's keys; 1: no split. scale: softmax_scale. A
// probability is dropped if its word is below dropout_below (0: no dropout). dropout_scale, 1 / (1 -
// dropout_p), multiplies the kept probabilities.

// MaskedParams: the only argument of every fa_fwd_masked_* kernel.
//
// fwd: without the optional tensors except rng_state, and without softcap.
//
// mask: (batch, nheads, seqlen_q, seqlen_k) by its strides, with stride 0 for a shared dimension. mask_kind,
// a MaskKind, is its element type. Bytes are 0, hiding the key, or 1. Other elements are added to the score,
// and -inf hides the key. Rows are contiguous and have mask_keys(seqlen_k) elements. The address, in
// elements, and the strides are multiples of kAlignedElements, and mask_row is below kMaxRowStride. A window
// hides more keys. Grid and block as for fa_fwd_*.
//
// If has_ranges(), fa_mask_ranges_* come first and leave the shown keys in out (masks/shown_range.hpp). If
// products start from the softmax's shift, a finite bias below -1e30 counts as -1e30, and a positive
// softmax_scale below kLeastScale is refused.

// CodedParams: the only argument of every fa_decode_8bit_* kernel.
//
// fwd: as for fa_decode_*, but elements of k and v have 8 bits, and their strides count bytes. `format`, a
// CodeFormat, is how a code is read.
//
// k_descale, v_descale: a code times its descale is its value. Null: 1. A descale belongs to a head of k of a
// sequence, or with per_key to one of its keys; then it has k's batch (or pages), rows and heads. Without
// per_key, _batch counts sequences of the call, also with block_table or cache_batch_idx, and _row is unused.
// Strides are in floats and may be 0. With per_key, _row is below kMaxRowStride.
//
// inf and NaN of e5m2 count as such. The codes of NaN of e4m3fn are read as 480 and -480, that of e4m3fnuz as
// 0: caches written by fa_append_8bit_* have them for values of NaN only.

// Fp8Params: the only argument of every fa_fwd_fp8_* kernel.
//
// fwd: as for fa_fwd_*, without softcap, ALiBi, dropout, pages, lengths in use and places in a cache. q, k
// and v are codes, e4m3fn or e4m3fnuz (`format`, a CodeFormat), and their strides count pairs of bytes,
// multiples of 8. dropout_scale is unused.
//
// q_descale, k_descale, v_descale: a code times its descale is its value. Null: 1. They belong to a head of k
// of a sequence of the call. Strides are in floats and may be 0. Codes of NaN of e4m3fn are read as 480 and
// -480 by products of e4m3fnuz, and as NaN by those of e4m3fn, which take no e4m3fnuz.

// fa_fwd_int8_* have the same argument. q and k are then int8, and v is e4m3fn. q_descale: (batch, nheads,
// rows) fp32, a scale of each row, and k_descale: (batch, nheads_k, scales) of kKeysOfScale keys each, an
// even number of scales. Rows are contiguous.

// QuantiseTensor: q, k or v (batch, rows, heads, head_dim), its codes, dense, and their scales as for
// fa_fwd_int8_*, dense, too. Strides in elements, multiples of 16.

// QuantiseParams: the only argument of every fa_quantise_* kernel: q, k and v. head_dim is 64 or 128. Phase 0
// leaves the largest magnitudes of v in `largest` (batch, heads, ceil(rows / kQuantisedRows)), and phase 1
// writes codes and scales. Grid: x = ceil(the most rows / kQuantisedRows), y = the most heads, z = batch in
// phase 0, 3 * batch in phase 1; block x = kQuantiseThreads. A code times its scale is the value of v, or an
// element of a row of q or k after the rotation, which keeps lengths. NaN and infinities of q and k make
// their scales NaN or infinite, and those of v the code of NaN.

// WidenTensor: k or v of a cache of 8 bits, and the copy. The cache's strides count bytes.

// WidenParams: writes the first keys of each sequence's cache as elements of 16 bits, the code times its
// descale in fp32, rounded to nearest even. The only argument of every fa_widen_* kernel.
//
//   from  (batch_cache, rows, nheads_k, head_dim), or pages (batch_cache, page, nheads_k, head_dim)
//   to    (batch, seqlen_k, nheads_k, head_dim)
//
// block_table, cache_batch_idx and seqused_k (all optional), and clamped values, as in FwdParams. Keys from
// seqused_k on are neither read nor written. Descales as in CodedParams. batch_cache is positive if there are
// keys.
//
// `vectors`: head_dim, pointers and strides of from (in bytes) are multiples of kWidenWidth; pointers of to
// are multiples of 32 bytes, and its strides of kWidenWidth elements. seqlen_k * nheads_k is at most
// kMaxLength. Grid: x = blocks, any number from 1 on, y = batch, z = 2 (k, v); block x = kWidenThreads.

// CodedAppendParams: as AppendParams, but a cache's element is a code of 8 bits, and its strides count bytes.
// The only argument of every fa_append_8bit_* kernel.
//
// A code is that of the element that fa_append_* would write, divided by its descale in fp32: rounded to
// nearest even, and at most the format's largest number (e4m3fn 448, e4m3fnuz 240, e5m2 57344, int8 127).
// Numbers and infinities never become 0x80 or the code of NaN. NaN becomes 0x7f (e4m3fn, e5m2), 0x80
// (e4m3fnuz) or 0 (int8).
//
// Descales as in CodedParams. With per_key the kernel writes them: the largest magnitude of the key's head,
// at least kLeastMagnitude, divided by the format's largest number, in fp32. In it, NaN counts as 0 and
// infinity as the largest number of the tensors' type.

// MaskRangesParams: the only argument of every fa_mask_ranges_* kernel: a mask and out as in MaskedParams,
// and the number of sequences. An element of the mask has 1 << shift bytes, 1 or 2. An element that hides a
// key is 0, or -inf of the tensors' type. `hidden` is a word filled with it. Grid: x = ceil(seqlen_q /
// mask_rows), y = nheads, z = batch, where a dimension with mask stride 0 has 1. Block x = kMaskRangesThreads
// (call/config.hpp).

// AppendTensor: rows moved by fa_append_*: of q to their rotated copy, of k and v into the caches. For a
// paged cache, to_batch is the stride of pages.

// AppendParams: writes new keys and values into a cache, in place. The only argument of every fa_append_*
// kernel.
//
//   q     (batch, rows_q, nheads, head_dim) to the same shape; null pointers without rotation of q
//   k, v  (batch, rows_new, nheads_k, head_dim) to dense (batch_cache, capacity, nheads_k, head_dim)
//         caches, or pages (batch_cache, page, nheads_k, head_dim); capacity is then table pages * page
//
// New key i of sequence b gets position cache_seqlens[b] + i. This is a row of the cache's place b, or of
// cache_batch_idx[b] if given; or row position % page of page block_table[position / page] if given. Padding
// to the left of the keys has no effect: positions count from the cache's first row.
//
// Rotation, unless cos is null: pairs of the first 2 * rotary_half elements of k, by angle j of row
// `position` of cos and sin (rotary_rows, rotary_half). Pairs are neighbours if interleaved, else elements j
// and j + rotary_half. Row i of q likewise, at position cache_seqlens[b] + (advances ? i : 0). In fp32
// without fused multiply-adds, rounded once to nearest even. Other elements keep their bits.
//
// Values in device memory are checked: a key whose position, page or place is outside the cache is dropped. A
// position beyond rotary_rows takes the last row, one before 0 the first.
//
// Strides in elements, of any sign. The last dimension has stride 1. `vectors`: all pointers are multiples of
// 16 bytes, and all strides, head_dim and rotary_half multiples of 8 elements. rows * heads is at most
// kMaxLength. Grid: x = blocks, any number from 1 on, y = batch, z = 2 (k, v) or 3 (k, v, q); block x =
// kAppendThreads.
//
// tensors: k, v and q. page 0: dense. interleaved, advances and vectors are 0 or 1.

// Keys with one scale, of the kernels with products of int8.
inline constexpr int32_t kKeysOfScale = 32;
// Threads of a workgroup that quantises, and its rows of a head.
inline constexpr int32_t kQuantiseThreads = 256, kQuantisedRows = 256;

inline constexpr int32_t kAppendThreads = 256;
inline constexpr int32_t kAppendWidth = 8;  // elements moved at once with `vectors`

// The smallest magnitude that a key's descale is made for.
inline constexpr float kLeastMagnitude = 0x1p-64f;

// Threads that move a head's row, each twice `width` elements.
constexpr int32_t append_units(int32_t head_dim, int32_t width) {
  return (head_dim + 2 * width - 1) / (2 * width);
}

inline constexpr int32_t kWidenThreads = 256;
inline constexpr int32_t kWidenWidth = 16;  // elements moved at once with `vectors`
inline constexpr int32_t kWidenOdd = 2;     // elements of a thread without

// Threads that copy a head's row.
constexpr int32_t widen_units(int32_t head_dim, bool vectors) {
  const int32_t width = vectors ? kWidenWidth : kWidenOdd;
  return (head_dim + width - 1) / width;
}

// ReferenceParams: forward attention, the only argument of every fa_reference_* kernel. Head dims from 1 to
// kMaxHeadDim. Pointers and strides are multiples of one element, the last dimension has stride 1, and row
// strides are unbounded. Keys are not split. Grid: x = blocks, which share the rows, y = nheads, z = batch.
// Block x = threads (reference_tile in call/config.hpp).

// CombineParams: the only argument of every fa_combine_* kernel. Computes out and lse of the rows of a
// FwdParams from the results of the parts of their keys. Fields as there. head_dim is a multiple of 4 and at
// most 4 * kCombineThreads. Grid: x = seqlen_q, y = nheads, z = batch. Block x = kCombineThreads
// (call/config.hpp).

// Whether a call takes the loop with all features, or the plain one.
constexpr bool featured(const FwdParams& p) {
  return p.alibi_slopes != nullptr || p.softcap != 0 || p.block_table != nullptr || p.dropout_below != 0;
}

// Whether lengths or places of sequences are in device memory.
constexpr bool has_lengths(const FwdParams& p) {
  return p.cu_seqlens_q != nullptr || p.cu_seqlens_k != nullptr || p.seqused_k != nullptr ||
         p.leftpad_k != nullptr || p.cache_batch_idx != nullptr;
}

// Bits of `rare`: kernels look at one number, instead of at all of these arguments.
inline constexpr uint32_t kHasFeatures = 1, kHasLengths = 2;
constexpr uint32_t rare_in(const FwdParams& p) {
  return (featured(p) ? kHasFeatures : 0) | (has_lengths(p) ? kHasLengths : 0);
}

inline constexpr int32_t kNoWindow = -1;

// How the 8 bits of a cache's element are read. e4m3fn and e5m2: OCP 8-bit formats. e4m3fnuz: half of
// e4m3fn's value, 0x80 is NaN. int8: two's complement.
enum class CodeFormat : int32_t { e4m3fn, e4m3fnuz, e5m2, int8 };

// Element type of a mask: bool, the tensors' type, or fp32.
enum class MaskKind : int32_t { bytes, elements, fp32 };

// Whether fa_mask_ranges_* examine a mask. Examining a bias takes as long as adding it, so only a bias shared
// by heads or rows is examined.
constexpr bool has_ranges(int32_t mask_kind, int64_t mask_head, int64_t mask_row) {
  const auto kind = static_cast<MaskKind>(mask_kind);
  return kind == MaskKind::bytes || (kind == MaskKind::elements && (mask_head == 0 || mask_row == 0));
}

// Biases are divided by softmax_scale.
inline constexpr float kLeastScale = 1e-6f;

// The largest head dim of kernels with all features, and of any kernel (forward/wide.hpp).
inline constexpr int32_t kMaxHeadDim = 256;
inline constexpr int32_t kMaxWideHeadDim = 512;

// The head dim of q and k in kernels with another head dim of v and out (forward/uneven.hpp), and v's:
// DeepSeek V2's and V3's.
inline constexpr int32_t kUnevenHeadDim = 192;
inline constexpr int32_t kUnevenValueDim = 128;

// Multi-head latent attention: the head dim of V, the first elements of K. K has kLatentRest more.
inline constexpr int32_t kLatentRest = 64;
// fa_mla_rows_*: 512 codes of e4m3fn, four fp32 scales, each of 128 codes, and kLatentRest elements of bf16.
// Pointer and strides, in bytes, are multiples of 16. Codes of NaN are read as 480 and -480.
constexpr int32_t kScaledRowBytes = 656;
constexpr int32_t mla_value_dim(int32_t head_dim) { return head_dim - kLatentRest; }

// Limit for the parts of a sequence's keys: 32768 keys of one head, in the shortest automatic parts, fill the
// largest device.
inline constexpr int64_t kMaxSplits = 512;

// Pointers and strides of the kernels for one head dim are multiples of this many elements.
inline constexpr int64_t kAlignedElements = 8;

// The rows of a page of a paged cache are a multiple of this.
inline constexpr int64_t kPageMultiple = 16;

// The elements of a mask's row, including padding after the last key.
constexpr int32_t mask_keys(int64_t seqlen_k) {
  return static_cast<int32_t>((seqlen_k + kAlignedElements - 1) / kAlignedElements * kAlignedElements);
}

// A tile's rows are addressed with 32 bits from the tile's first: 64 rows of 2-byte elements.
inline constexpr int64_t kMaxRowStride = int64_t{1} << 24;

// Sums of two lengths, or of a length and a window, and a block of rows are 32 bits wide.
inline constexpr int64_t kMaxLength = (int64_t{1} << 30) - 4096;

}  // namespace fa
