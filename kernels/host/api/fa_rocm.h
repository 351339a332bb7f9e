/* The C interface of the host library: attention on AMD GPUs without any PyTorch type.
 *
 * Every function returns a status. Unless it is FA_OK, `message` says what failed, the expected and found
 * values, and what to do next. C++ exceptions stay inside. All functions may be called from any thread. The
 * library loads without a HIP runtime, and functions marked so also run without one.
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
 * headdim if there is a kernel for both (fa_plan). The kernels for one head dim need base addresses and other
 * strides in multiples of 8 elements, and rows less than 2^24 elements apart. Otherwise the reference kernel
 * is used (fa_plan), up to headdim 256. lse (batch, nheads, seqlen_q) FA_FP32, contiguous.
 *
 * Scores are softmax_scale * q k^T, then softcap * tanh(score / softcap) unless softcap is 0, then minus
 * alibi slope * distance from the diagonal. The diagonal is aligned bottom-right, with each sequence's own
 * lengths: row i is at key i + seqlen_k - seqlen_q. It attends to the keys from window_left before this key
 * to window_right after it. -1 is unbounded, and causal is window_right 0. Rows without a key: out 0, lse
 * +infinity.
 *
 * Optional, absent if dims is 0. All are on q's device and contiguous in their last dimension:
 *   alibi_slopes  FA_FP32 (nheads) or (batch, nheads)
 *   cu_seqlens_q  FA_INT32 (batch + 1): q and out are (total_q, nheads, headdim), lse (nheads, total_q), and
 *                 sequence b is rows cu[b] to cu[b + 1]. max_seqlen_q is the longest
 *   cu_seqlens_k  FA_INT32 (batch + 1), only with cu_seqlens_q: likewise k and v
 *                 (total_k, nheads_k, headdim). max_seqlen_k is the longest
 *   seqused_k     FA_INT32 (batch): keys of a sequence in use, counted from its first
 *   leftpad_k     FA_INT32 (batch): keys before the first in use; excludes block_table
 *   block_table   FA_INT32 (batch, blocks): k and v are (num_blocks, page, nheads_k, headdim), page a
 *                 multiple of 16, and key j of a sequence is row j % page of block table[j / page]. Its
 *                 length is seqused_k, or the difference of cu_seqlens_k, or all its pages
 *   cache_batch_idx  FA_INT32 (batch): sequence b has row cache_batch_idx[b] of k and v, whose batch size
 *                 may then differ from q's. Only with dense k and v
 *   attn_mask     FA_BOOL, q's dtype or FA_FP32 (batch, nheads, seqlen_q, keys). batch, nheads and seqlen_q
 *                 may be 1 instead, a stride may be 0, and keys are seqlen_k rounded up to a multiple of 8.
 *                 false hides a key from a query. Numbers are added to the scores, and -infinity hides. Only
 *                 with dense q, k and v of a headdim with masked kernels (fa_plan), and without softcap and
 *                 all other optional tensors except rng_state and sink. The address, in elements, and all
 *                 strides except the last are multiples of 8, and rows less than 2^24 elements apart
 *   sink          FA_FP32 (nheads), contiguous: per head, the score of one more key, with value 0
 *   k_descale, v_descale  FA_FP32, beside k and v of 8 bits: a code times its descale is its value. Both of a
 *                 head of k of a sequence, (batch, nheads_k), or both of a key: the first three dimensions of
 *                 k. Any strides, also 0. Without them the descale is 1
 *   rng_state     FA_INT64 (2), each below 2^32: the key of dropout's generator. Given exactly if
 *                 dropout_p > 0
 *   partial_out, partial_lse  FA_FP32 (splits, lse's shape, headdim) and (splits, lse's shape), contiguous:
 *                 the results of the parts of the keys. Given together, if fa_plan asks for them for the
 *                 call with num_splits = splits, and with as many parts
 *
 * k and v may both be codes of 8 bits, FA_E4M3FN, FA_E4M3FNUZ, FA_E5M2 or FA_INT8, dense in a batch or with
 * block_table. fa_plan says whether there is a kernel (coded): for few queries of some head dims, without
 * attn_mask and dropout, with addresses and strides of k and v in multiples of 16 bytes. For all other calls
 * fa_widen first makes k and v of q's dtype.
 *
 * Only the kernel reads the values of integers, and clamps them to the tensors.
 *
 * `path`: as fa_plan says, or "" or NULL for the library's plan of a call without tall workgroups. Its
 * kernels must be able to compute the call in as many parts as partial_lse has.
 *
 * dropout_p in [0, 1) is the share of dropped probabilities. The kept ones grow by 1 / (1 - dropout_p).
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_fwd(const fa_fwd_call* call, fa_message* message);

/* fa_bwd_call: dq, dk and dv, the gradients of q, k and v, from dout, the gradient of out.
 *
 * q, k, v and the options are the forward call's, and out and lse its results. dq is shaped like q, dout like
 * out, dk like k and dv like v. delta, FA_FP32 and shaped like lse, gets the sums of dout * out over headdim.
 * All addresses and strides except the last are multiples of 8 elements, and rows less than 2^24 elements
 * apart. There must be kernels for headdim (fa_plan_bwd). dq, dk and dv may be parts of one tensor, but
 * all their elements need distinct memory.
 *
 * Every row of a sequence is written. Rows without a key or a query get 0. Rows outside all sequences stay
 * unchanged.
 *
 * attn_mask is the forward call's, on the same conditions, and needs kernels with a mask for headdim
 * (fa_plan_bwd). Rows with a log-sum-exp below -131072 get zero gradients, like rows without a key: fp32
 * has too little precision left for the scores' differences. dscores, FA_FP32 (batch, nheads, seqlen_q, keys)
 * with the mask's number of keys, contiguous and zero, gets the gradients of the scores, which equal the
 * gradients of an added mask. A boolean mask has none, so it is refused then.
 *
 * Without dq_sums, kernels add in a fixed order, so the same call gives the same bits. With dq_sums (FA_FP32,
 * zero, fa_bwd_sums elements), one pass computes everything and adds dq up there, in any order. fa_plan_bwd
 * says for which calls there is such a kernel.
 *
 * `path`: as fa_plan_bwd says, or "" or NULL: dq_sums tell it.
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_bwd(const fa_bwd_call* call, fa_message* message);

/* fa_append_call: writes k and v (batch, seqlen_new, nheads_k, headdim), new keys and values, into k_cache
 * and v_cache, in place, and on the way rotates k, and q (batch, seqlen_q, nheads, headdim) to q_out, shaped
 * like it.
 *
 * Caches are (batch_cache, seqlen_cache, nheads_k, headdim), and sequence b has row b, or cache_batch_idx[b],
 * FA_INT32 (batch), if given. With block_table, FA_INT32 (batch, blocks), they are (num_blocks, page,
 * nheads_k, headdim), page a multiple of 16. Key i of sequence b goes to position cache_seqlens[b] + i,
 * FA_INT32 (batch); with block_table this is row position % page of block table[position / page]. Padding on
 * the left of a sequence's keys counts among its positions.
 *
 * cos and sin (seqlen_rotary, rotary_dim / 2), rotary_dim at most headdim, given together with q_out: pairs
 * of the first rotary_dim elements (neighbours if `interleaved`, else one of each half) are rotated in fp32
 * by the row of the key's position. Row i of q uses row cache_seqlens[b] + i if `advances`, else row
 * cache_seqlens[b]. Without cos and sin, q is not read.
 *
 * All tensors except the integers have one dtype, FA_FP16 or FA_BF16; caches may have 8 bits instead (below).
 * headdim is up to 512 and contiguous, with any other strides; rows at multiples of 8 elements are faster.
 * All written elements need distinct memory.
 *
 * Only the kernel reads integers. It drops keys whose position, block or row is outside the cache. Positions
 * outside cos and sin take their nearest row. If two keys have the same place, either may remain.
 *
 * k_cache and v_cache may both hold codes of 8 bits, FA_E4M3FN, FA_E4M3FNUZ, FA_E5M2 or FA_INT8. A code is
 * that of the element, after the rotation and rounded to its dtype, divided by a descale in fp32: rounded to
 * nearest even, and at most the format's largest number (448, 240, 57344 and 127). Numbers, also infinite
 * ones, never become NaN or -0. NaN becomes 0x7f (FA_E4M3FN, FA_E5M2), 0x80 (FA_E4M3FNUZ) or 0 (FA_INT8).
 * k_descale and v_descale, FA_FP32 with any strides, are those of heads, (batch, nheads_k), and are read. Or
 * they are those of keys, the first three dimensions of the cache, and are written: the largest magnitude of
 * a key's head, at least 2^-64, divided by the format's largest number. In it, NaN counts as 0, and infinity
 * as the largest number of the dtype. Without them the descale is 1.
 *
 * q_out, cos, sin, block_table, cache_batch_idx, k_descale and v_descale are absent if dims is 0.
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_append(const fa_append_call* call, fa_message* message);

/* fa_widen_call: writes the keys of k_cache and v_cache, of 8 bits, as elements of k_out and v_out, FA_FP16
 * or FA_BF16: code times descale in fp32, rounded to nearest even.
 *
 * Caches, block_table, cache_batch_idx, seqused_k, k_descale and v_descale are those of fa_fwd. k_out and
 * v_out (batch, rows, nheads_k, headdim) get a sequence's keys in order, up to their number of rows. Rows
 * from seqused_k[b] on are neither read nor written. headdim is up to 512 and contiguous, with any other
 * strides; rows at multiples of 16 elements, and k_out and v_out at multiples of 32 bytes, are faster.
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_widen(const fa_widen_call* call, fa_message* message);

/* fa_mla_call: out = softmax(scores) v of multi-head latent attention, where all heads share one head of k,
 * and v is its first elements.
 *
 * q (batch, seqlen_q, nheads, headdim); kv_cache (batch, seqlen_cache, 1, headdim), or with block_table,
 * FA_INT32 (batch, blocks), (num_blocks, page, 1, headdim), page a multiple of 16: key j of a sequence is
 * then row j % page of block table[j / page]. out (batch, seqlen_q, nheads, headdim - 64). All have one
 * dtype, FA_FP16 or FA_BF16, or kv_cache has codes of 8 bits, as for fa_fwd. There must be a kernel for
 * headdim (fa_plan_mla). Addresses and strides except the last are multiples of 8 elements, of codes 16, and
 * rows less than 2^24 elements apart. lse (batch, nheads, seqlen_q) FA_FP32, contiguous.
 *
 * kv_descale: FA_FP32 (batch, 1), or one for each key, the first three dimensions of kv_cache. Codes times it
 * are keys. Absent: 1.
 *
 * Or the last dimension of kv_cache is 656, of FA_E4M3FN, beside a q of FA_BF16 with headdim 576: a key is
 * then 512 codes, four FA_FP32, each the scale of 128 codes, and 64 elements of FA_BF16. Without kv_descale.
 *
 * cache_seqlens, FA_INT32 (batch): keys of a sequence; default: all. `causal`: row i sees key j only if
 * j <= i + keys - seqlen_q. Rows without a key: out 0, lse +infinity. Only the kernel reads integers, and
 * clamps them to the tensors.
 *
 * partial_out, partial_lse: FA_FP32 (splits, batch, nheads, seqlen_q, headdim - 64) and (splits, batch,
 * nheads, seqlen_q), contiguous, given together if keys are split. fa_plan_mla says the best number of parts.
 * More are possible, as many as it says for a larger num_splits.
 *
 * cache_seqlens, block_table, kv_descale, partial_out and partial_lse are absent if dims is 0.
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_mla(const fa_mla_call* call, fa_message* message);

/* fa_fwd_fp8_call: out = softmax(scores) v of q, k and v in fp8, with products of fp8.
 *
 * q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim), or with cu_seqlens_q
 * and cu_seqlens_k as in fa_fwd; all FA_E4M3FN or all FA_E4M3FNUZ. q_descale, k_descale, v_descale FA_FP32
 * (batch, nheads_k), any strides: a code times its descale is its number. Default: 1. q's heads share the
 * descale of the head of k that they read. out like q, FA_BF16; lse as in fa_fwd, of these numbers. There
 * must be a kernel (fa_instances: op fwd_fp8). Addresses and strides of q, k and v except the last are
 * multiples of 16 bytes, those of out of 8 elements, and rows less than 2^24 apart. Windows and sink as in
 * fa_fwd.
 *
 * Codes of NaN: of FA_E4M3FN they count as 480 and -480 on gfx942, elsewhere they are NaN. That of
 * FA_E4M3FNUZ is NaN; only gfx942 has products of this format.
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_fwd_fp8(const fa_fwd_fp8_call* call, fa_message* message);

/* fa_fwd_int8_call: out = softmax(scores) v as SageAttention computes it: q and k become codes of int8, and v
 * of float8_e4m3fn, in launches of their own. Without products of fp8 (RDNA 2) v stays as it is.
 *
 * q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim), out like q; one dtype,
 * FA_FP16 or FA_BF16; headdim 64 or 128. There must be a kernel (fa_instances: op fwd_int8). Addresses and
 * strides except the last are multiples of 8 elements, and rows less than 2^24 elements apart. lse and
 * windows as in fa_fwd, of the codes' numbers. workspace FA_FP32, contiguous, an address that is a multiple
 * of 16 bytes, of so many numbers: headdim / 4 for each row of a head of q, k and v, one for each of q's, one
 * for each 32 rows of k's, an even number for each head, one for each head of v and one for each 256 of its
 * rows.
 *
 * A row of q, or the 32 keys of k with a common scale, whose numbers are NaN or infinite, make scores NaN.
 * Such numbers of v make out NaN where v becomes codes. Elsewhere they act as in fa_fwd.
 *
 * Queues what is to be done on `stream` and returns without waiting for it. */
fa_status fa_fwd_int8(const fa_fwd_int8_call* call, fa_message* message);

/* fa_plan_call: the properties of a forward call that determine its path and the parts of its keys.
 *   arch           as the runtime reports it ("gfx942:sramecc+:xnack-") or bare
 *   dtype          "fp16" or "bf16"
 *   aligned        addresses and strides fulfil fa_fwd_call's conditions for kernels of one head dim
 *   num_splits     0: the library chooses the number of parts, from the device's `compute_units`
 *   plain          without ALiBi, softcap, dropout, pages, cu_seqlens_q and window_left. Only such calls get
 *                  the path tall
 *   v_head_dim     v's, if different and the call is without ALiBi, softcap and pages, else 0. On paths other
 *                  than uneven, v has to be padded to head_dim
 *   coded          k and v are codes of 8 bits. FA_UNSUPPORTED if no kernel reads them in this call
 *
 * fa_plan_mla_call: likewise for fa_mla. seqlen_k is the most keys of a sequence. coded: kv_cache has codes
 * of 8 bits. scaled: it has rows of 656 bytes.
 *
 * fa_plan_bwd_call: likewise for fa_bwd, and
 *   featured       with ALiBi, softcap or dropout
 *   deterministic  the same bits every time
 *   masked         with an attn_mask
 *   wanted         a path, or "" for the default of the arch */

/* How the library computes a call. */
typedef struct fa_plan_result {
  const char* path; /* of kinds.toml, valid until the process ends; "" without a kernel. fused: fa_bwd needs
                       dq_sums */
  int32_t splits;   /* parts of the keys. Above 1: fa_fwd and fa_mla need partial_out and partial_lse with as
                       many parts */
} fa_plan_result;

/* The plan of a call, and in `message` why. Runs without a HIP runtime. FA_UNSUPPORTED: no kernel. */
fa_status fa_plan(const fa_plan_call* call, fa_plan_result* plan, fa_message* message);
fa_status fa_plan_mla(const fa_plan_mla_call* call, fa_plan_result* plan, fa_message* message);
fa_status fa_plan_bwd(const fa_plan_bwd_call* call, fa_plan_result* plan, fa_message* message);

/* The number of elements of fa_bwd_call's dq_sums. `ragged` 0 or 1: with cu_seqlens_q. rows_q: q's rows, of
 * one sequence, or of all with cu_seqlens_q. */
int64_t fa_bwd_sums(int32_t ragged, int64_t batch, int64_t rows_q, int64_t nheads, int64_t head_dim);

/* The kernels in this library as JSON: [{"name", "op", "dtype", "head_dim", "archs": [...], "clang"}, ...].
 * archs are the archs with machine code, clang is the major version of its compiler.
 * Valid until the process ends. Runs without a HIP runtime. NULL only if memory ran out. */
const char* fa_instances(void);

/* The supported GPUs as JSON, each with the arch of its machine code, for example
 * {"gfx1030": "gfx1030", "gfx1031": "gfx1030"}. Valid until the process ends. Runs without a HIP runtime.
 * NULL only if memory ran out. */
const char* fa_gpus(void);

/* The limits of the kernels, as JSON of numbers:
 *   head_dim         largest
 *   wide_head_dim    largest without features
 *   uneven_head_dim  of v, in kernels with another head dim of v
 *   splits           most parts of the keys
 *   row_stride       upper bound (exclusive) of row strides, in elements
 *   alignment        of addresses and strides, in elements
 *   page             the rows of a page are a multiple of this
 *   least_scale      smallest positive softmax_scale with a bias
 * Valid until the process ends. Runs without a HIP runtime. NULL only if memory ran out. */
const char* fa_limits(void);

/* A kernel with another row of the table of tiles: its machine code, and how it divides work.
 *   kernel   a name of fa_instances, of one with a head dim, except latent attention's
 *   row      the row's id. A row that was loaded before is not loaded again. "": the library's own kernel
 *   code     `bytes` of code objects, in the form of the library's own. The kernel's is number `place`
 *   rows     of a workgroup, which has `threads`: as the kernel was compiled. 1 to 1024 each
 *   regime   only for calls of this regime of kernels/tables/tuning.toml. "": for all
 * Wrong rows or threads, or code of another version, give wrong results or faults. */
typedef struct fa_candidate {
  const char* kernel;
  const char* row;
  const void* code;
  int64_t bytes;
  int32_t device; /* -1: the current one */
  int64_t place, rows, threads;
  const char* regime;
} fa_candidate;

/* Later launches of this kernel on this device use the candidate, in its regime. After an error nothing has
 * changed. */
fa_status fa_replace(const fa_candidate* candidate, fa_message* message);

/* The number of the device's compute units. */
fa_status fa_device_compute_units(int32_t device, int32_t* units, fa_message* message);

/* Writes the device's arch as the runtime reports it into `message` and returns FA_OK. */
fa_status fa_device_arch(int32_t device, fa_message* message);

#ifdef __cplusplus
}
#endif

#endif
