/* The C interface of the host library: attention on AMD GPUs without any PyTorch type.
 *
 * Every function returns a status and, unless it is FA_OK, says in `message` what failed, what was
 * expected and found, and what to do next. No C++ exception leaves. All functions may be called from
 * any thread. No HIP runtime is needed to load the library or to call the functions that say so.
 */
#ifndef FA_ROCM_H
#define FA_ROCM_H

#include "host/types/fa_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* fa_fwd_call: out = softmax(scores) v, and lse = the log-sum-exp of the scores (natural logarithm).
 *
 * q, out (batch, seqlen_q, nheads, headdim); k, v (batch, seqlen_k, nheads_k, headdim), all of one
 * dtype FA_FP16 or FA_BF16, nheads a multiple of nheads_k, headdim contiguous and from 1 to 256, or to 512
 * without alibi_slopes, softcap, dropout, attn_mask and block_table (fa_plan). v and out may have another
 * headdim where there is a kernel for both (fa_plan). Where base addresses and the other strides are
 * multiples of 8 elements, and rows less than 2^24 elements apart, the kernels for one head dim can read
 * them; otherwise the reference kernel does (fa_plan), up to headdim 256. lse (batch, nheads, seqlen_q)
 * FA_FP32, contiguous.
 *
 * Scores are softmax_scale * q k^T; then softcap * tanh(score / softcap) unless softcap is 0; then minus
 * alibi slope * distance from the diagonal. The diagonal is aligned bottom-right, with each sequence's own
 * lengths: row i is at key i + seqlen_k - seqlen_q. It attends to the keys from window_left before that one
 * to window_right after it; -1 is no bound, and causal is window_right 0. Rows without a key: out 0, lse
 * +infinity.
 *
 * Optional, absent where dims is 0; all on q's device and contiguous in their last dimension:
 *   alibi_slopes  FA_FP32 (nheads) or (batch, nheads)
 *   cu_seqlens_q  FA_INT32 (batch + 1): q and out are (total_q, nheads, headdim), lse (nheads, total_q), and
 *                 sequence b is rows cu[b] to cu[b + 1]; max_seqlen_q is the longest
 *   cu_seqlens_k  FA_INT32 (batch + 1), only with cu_seqlens_q: likewise k and v
 *                 (total_k, nheads_k, headdim); max_seqlen_k is the longest
 *   seqused_k     FA_INT32 (batch): keys of a sequence in use, counted from its first
 *   leftpad_k     FA_INT32 (batch): keys before the first in use; not with block_table
 *   block_table   FA_INT32 (batch, blocks): k and v are (num_blocks, page, nheads_k, headdim), page a
 *                 multiple of 16, and key j of a sequence is row j % page of block table[j / page]; its
 *                 length is seqused_k, or the difference of cu_seqlens_k, or all its pages
 *   cache_batch_idx  FA_INT32 (batch): sequence b has row cache_batch_idx[b] of k and v, whose batch may
 *                 then be another than q's; only with dense k and v
 *   attn_mask     FA_BOOL, q's dtype or FA_FP32 (batch, nheads, seqlen_q, keys), where batch, nheads and
 *                 seqlen_q may be 1 instead, a stride may be 0, and keys are seqlen_k rounded up to a
 *                 multiple of 8: false hides a key from a query; numbers are added to the scores, and
 *                 -infinity hides. Only with dense q, k and v of a headdim that kernels with a mask have
 *                 (fa_plan), without softcap and the other optional tensors but rng_state. The address, in
 *                 elements, and all strides but the last are multiples of 8, and rows less than 2^24
 *                 elements apart
 *   rng_state     FA_INT64 (2), each below 2^32: the key of the generator that says what dropout drops;
 *                 given when dropout_p > 0 and only then
 *   partial_out, partial_lse  FA_FP32 (splits, lse's shape, headdim) and (splits, lse's shape), contiguous:
 *                 where each part of the keys leaves its result; given together, when fa_plan says so of the
 *                 call with num_splits = splits, and with as many parts
 *
 * The values of integers are read by the kernel only. Those that lead out of the tensors are cut off there.
 *
 * `tall`: with the kernel that has more rows in a workgroup, as fa_plan says; not with ALiBi, softcap,
 * dropout or pages.
 *
 * dropout_p in [0, 1) is the share of probabilities that dropout drops; those kept grow by 1 / (1 -
 * dropout_p).
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_fwd(const fa_fwd_call* call, fa_message* message);

/* fa_bwd_call: dq, dk and dv, the gradients of q, k and v, from dout, the gradient of out.
 *
 * q, k, v, out, lse and the options are those of the forward call, whose results out and lse are; dq is
 * shaped like q, dout like out, dk like k and dv like v. delta, FA_FP32 and shaped like lse, gets the sums of
 * dout * out over headdim. All addresses and strides but the last are multiples of 8 elements, and rows less
 * than 2^24 elements apart; headdim is that of a kernel (fa_explain_bwd). dq, dk and dv may be parts of one
 * tensor, but no two of their elements may share memory.
 *
 * Every row of a sequence is written, rows without a key or a query with 0; rows that belong to no sequence
 * are left as they are.
 *
 * attn_mask is that of the forward call, on the same conditions, and then headdim is that of a kernel with a
 * mask (fa_explain_bwd). Rows whose log-sum-exp is below -131072, where fp32 has too little left of the
 * scores' differences, have no gradients, as if they saw no key. dscores, FA_FP32 (batch, nheads, seqlen_q,
 * keys) with the mask's number of keys, contiguous and zero, gets the gradients of the scores, which are
 * those of a mask that is added.
 *
 * Without dq_sums kernels add in a fixed order, so that the same call gives the same bits. With it, FA_FP32
 * and zero, of as many elements as fa_bwd_sums says, one pass computes everything and adds up dq there, in no
 * fixed order; fa_plan_bwd tells for which calls there is such a kernel.
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_bwd(const fa_bwd_call* call, fa_message* message);

/* fa_append_call: writes k and v (batch, seqlen_new, nheads_k, headdim), new keys and values, into k_cache
 * and v_cache, in place, and on the way rotates k, and q (batch, seqlen_q, nheads, headdim) to q_out, shaped
 * like it.
 *
 * Caches are (batch_cache, seqlen_cache, nheads_k, headdim), of which sequence b has row b, or
 * cache_batch_idx[b], FA_INT32 (batch), where that is given; or with block_table, FA_INT32 (batch, blocks),
 * (num_blocks, page, nheads_k, headdim), page a multiple of 16. Key i of sequence b goes to position
 * cache_seqlens[b] + i, FA_INT32 (batch); with block_table that is row position % page of block
 * table[position / page]. Padding on the left of a sequence's keys counts among its positions.
 *
 * cos and sin (seqlen_rotary, rotary_dim / 2), rotary_dim at most headdim, given together with q_out: pairs
 * of the first rotary_dim elements, neighbours when `interleaved`, otherwise the halves, are rotated in fp32
 * by the row of the key's position; those of q's row i by row cache_seqlens[b] + i when `advances`, otherwise
 * by row cache_seqlens[b]. Without them q is not read.
 *
 * All but the integers are of one dtype FA_FP16 or FA_BF16, headdim up to 512 and contiguous, with any other
 * strides; 16-byte aligned rows are faster. No two elements that are written may share memory.
 *
 * Integers are read by the kernel only. Keys whose position, block or row is not in the cache are not
 * written; positions outside of cos and sin take their nearest row. Which of two keys of one place stays is
 * open.
 *
 * q_out, cos, sin, block_table and cache_batch_idx are absent where dims is 0.
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_append(const fa_append_call* call, fa_message* message);

/* fa_mla_call: out = softmax(scores) v of multi-head latent attention, where all heads share one head of k,
 * and v is its first elements.
 *
 * q (batch, seqlen_q, nheads, headdim); kv_cache (batch, seqlen_cache, 1, headdim), or with block_table,
 * FA_INT32 (batch, blocks), (num_blocks, page, 1, headdim), page a multiple of 16: key j of a sequence is
 * then row j % page of block table[j / page]. out (batch, seqlen_q, nheads, headdim - 64). All of one dtype
 * FA_FP16 or FA_BF16; headdim is that of a kernel (fa_plan_mla), addresses and strides but the last are
 * multiples of 8 elements, and rows less than 2^24 elements apart. lse (batch, nheads, seqlen_q) FA_FP32,
 * contiguous.
 *
 * cache_seqlens, FA_INT32 (batch): keys of a sequence, all without it. `causal`: row i sees key j only if
 * j <= i + keys - seqlen_q. Rows without a key: out 0, lse +infinity. Integers are read by the kernel only;
 * those that lead out of the tensors are cut off there.
 *
 * partial_out, partial_lse: FA_FP32 (splits, batch, nheads, seqlen_q, headdim - 64) and (splits, batch,
 * nheads, seqlen_q), contiguous, given together, where keys are cut into parts: as many as fa_plan_mla says
 * of the call, or of num_splits = splits.
 *
 * cache_seqlens, block_table, partial_out and partial_lse are absent where dims is 0.
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_mla(const fa_mla_call* call, fa_message* message);

/* fa_plan_call: what of a forward call its path and the parts of its keys depend on. arch as the runtime
 * reports it ("gfx942:sramecc+:xnack-") or bare; dtype "fp16" or "bf16". With `aligned` addresses and strides
 * are those that fa_fwd_call wants; `num_splits` 0 leaves the number of parts to the library, which needs
 * `compute_units` of the device for it. `plain`: without ALiBi, softcap, dropout, pages, cu_seqlens_q and
 * window_left; only such calls get the path tall. `v_head_dim`: that of v, where it is another one and the
 * call has neither ALiBi nor softcap nor pages, else 0; on another path than uneven v has to be padded to
 * head_dim. */
typedef struct fa_plan_result {
  const char* path; /* of `forward` in calls.toml; valid until the process ends */
  int32_t splits;   /* above 1: fa_fwd wants partial_out and partial_lse with as many parts */
} fa_plan_result;

/* How fa_fwd computes a call, and in `message` why. Needs no HIP runtime. FA_UNSUPPORTED: not at all. */
fa_status fa_plan(const fa_plan_call* call, fa_plan_result* result, fa_message* message);

/* fa_plan_mla_call: likewise of fa_mla; seqlen_k is the most keys that a sequence may have. */
fa_status fa_plan_mla(const fa_plan_mla_call* call, fa_plan_result* result, fa_message* message);

/* FA_OK when there are kernels for fa_bwd, `masked` with an attn_mask, otherwise FA_UNSUPPORTED and why.
 * Needs no HIP runtime. */
fa_status fa_explain_bwd(const char* arch, const char* dtype, int32_t head_dim, int32_t masked,
                         fa_message* message);

/* fa_plan_bwd_call: what the path of a backward call depends on. Names as for fa_plan; `featured`: with
 * ALiBi, softcap or dropout; `deterministic`: the same bits every time; `masked`: with an attn_mask;
 * `wanted`: a path, or "" for the default of the arch.
 *
 * Selects one of the `backward` paths in calls.toml, fused with dq_sums, and says in `message` why. Needs no
 * HIP runtime. FA_UNSUPPORTED: there is none. `path` is valid until the process ends. */
fa_status fa_plan_bwd(const fa_plan_bwd_call* call, const char** path, fa_message* message);

/* The elements of fa_bwd_call's dq_sums; `ragged` 0 or 1: with cu_seqlens_q. rows_q are those of q, of one
 * sequence or with cu_seqlens_q of all. */
int64_t fa_bwd_sums(int32_t ragged, int64_t batch, int64_t rows_q, int64_t nheads, int64_t head_dim);

/* The kernels in this library as JSON: [{"name", "op", "dtype", "head_dim", "archs": [...]}, ...]; archs are
 * those that there is machine code of.
 * Valid until the process ends. Needs no HIP runtime. NULL only when memory ran out. */
const char* fa_instances(void);

/* The GPUs that these kernels serve as JSON, each with the arch whose machine code it runs, for example
 * {"gfx1030": "gfx1030", "gfx1031": "gfx1030"}. Valid until the process ends. Needs no HIP runtime. NULL only
 * when memory ran out. */
const char* fa_gpus(void);

/* What the kernels can take, as JSON of whole numbers: "head_dim", the largest; "wide_head_dim", the
 * largest without features; "uneven_head_dim", that of v in kernels where it is another one; "splits", the
 * most parts of the keys; "row_stride", which rows have to stay below, in elements; "alignment" of addresses
 * and strides, in elements; "page", of which the rows of a page are a multiple. Valid until the process ends.
 * Needs no HIP runtime. NULL only when memory ran out. */
const char* fa_limits(void);

/* How many compute units the device has. */
fa_status fa_device_compute_units(int32_t device, int32_t* units, fa_message* message);

/* Writes the device's arch as the runtime reports it into `message` and returns FA_OK. */
fa_status fa_device_arch(int32_t device, fa_message* message);

#ifdef __cplusplus
}
#endif

#endif
