/* Generated from kernels/tables/calls.toml by wheel_builder/tables/generated.py: change it there. */

typedef struct fa_fwd_call {
  fa_tensor q;
  fa_tensor k;
  fa_tensor v;
  fa_tensor alibi_slopes;
  fa_tensor cu_seqlens_q;
  fa_tensor cu_seqlens_k;
  fa_tensor seqused_k;
  fa_tensor leftpad_k;
  fa_tensor block_table;
  fa_tensor cache_batch_idx;
  fa_tensor attn_mask;
  fa_tensor sink;
  fa_tensor k_descale;
  fa_tensor v_descale;
  fa_tensor out;
  fa_tensor lse;
  fa_tensor rng_state;
  fa_tensor partial_out;
  fa_tensor partial_lse;
  float softmax_scale;
  int64_t window_left;
  int64_t window_right;
  float softcap;
  double dropout_p;
  int64_t max_seqlen_q;
  int64_t max_seqlen_k;
  const char* path;
  void* stream; /* hipStream_t of q's device; NULL is the default stream */
} fa_fwd_call;

typedef struct fa_bwd_call {
  fa_tensor q;
  fa_tensor k;
  fa_tensor v;
  fa_tensor out;
  fa_tensor dout;
  fa_tensor lse;
  fa_tensor dq;
  fa_tensor dk;
  fa_tensor dv;
  fa_tensor delta;
  fa_tensor dq_sums;
  fa_tensor alibi_slopes;
  fa_tensor cu_seqlens_q;
  fa_tensor cu_seqlens_k;
  fa_tensor rng_state;
  fa_tensor attn_mask;
  fa_tensor dscores;
  float softmax_scale;
  int64_t window_left;
  int64_t window_right;
  float softcap;
  double dropout_p;
  int64_t max_seqlen_q;
  int64_t max_seqlen_k;
  const char* path;
  void* stream; /* hipStream_t of q's device; NULL is the default stream */
} fa_bwd_call;

typedef struct fa_append_call {
  fa_tensor q;
  fa_tensor k_cache;
  fa_tensor v_cache;
  fa_tensor k;
  fa_tensor v;
  fa_tensor cos;
  fa_tensor sin;
  fa_tensor cache_seqlens;
  fa_tensor block_table;
  fa_tensor cache_batch_idx;
  fa_tensor k_descale;
  fa_tensor v_descale;
  fa_tensor q_out;
  int32_t interleaved;
  int32_t advances;
  void* stream; /* hipStream_t of q's device; NULL is the default stream */
} fa_append_call;

typedef struct fa_widen_call {
  fa_tensor k_cache;
  fa_tensor v_cache;
  fa_tensor k_descale;
  fa_tensor v_descale;
  fa_tensor seqused_k;
  fa_tensor block_table;
  fa_tensor cache_batch_idx;
  fa_tensor k_out;
  fa_tensor v_out;
  void* stream; /* hipStream_t of k_cache's device; NULL is the default stream */
} fa_widen_call;

typedef struct fa_mla_call {
  fa_tensor q;
  fa_tensor kv_cache;
  fa_tensor cache_seqlens;
  fa_tensor block_table;
  fa_tensor kv_descale;
  fa_tensor out;
  fa_tensor lse;
  fa_tensor partial_out;
  fa_tensor partial_lse;
  float softmax_scale;
  int32_t causal;
  void* stream; /* hipStream_t of q's device; NULL is the default stream */
} fa_mla_call;

typedef struct fa_fwd_fp8_call {
  fa_tensor q;
  fa_tensor k;
  fa_tensor v;
  fa_tensor cu_seqlens_q;
  fa_tensor cu_seqlens_k;
  fa_tensor sink;
  fa_tensor q_descale;
  fa_tensor k_descale;
  fa_tensor v_descale;
  fa_tensor out;
  fa_tensor lse;
  float softmax_scale;
  int64_t window_left;
  int64_t window_right;
  int64_t max_seqlen_q;
  int64_t max_seqlen_k;
  void* stream; /* hipStream_t of q's device; NULL is the default stream */
} fa_fwd_fp8_call;

typedef struct fa_fwd_int8_call {
  fa_tensor q;
  fa_tensor k;
  fa_tensor v;
  fa_tensor workspace;
  fa_tensor out;
  fa_tensor lse;
  float softmax_scale;
  int64_t window_left;
  int64_t window_right;
  void* stream; /* hipStream_t of q's device; NULL is the default stream */
} fa_fwd_int8_call;

typedef struct fa_plan_call {
  const char* arch;
  const char* dtype;
  int64_t head_dim;
  int64_t batch;
  int64_t max_seqlen_q;
  int64_t max_seqlen_k;
  int64_t nheads;
  int64_t nheads_k;
  int64_t compute_units;
  int64_t num_splits;
  int32_t dropout;
  int32_t aligned;
  int32_t plain;
  int32_t masked;
  int64_t v_head_dim;
  int32_t coded;
  int32_t causal;
} fa_plan_call;

typedef struct fa_plan_mla_call {
  const char* arch;
  const char* dtype;
  int64_t head_dim;
  int64_t batch;
  int64_t seqlen_q;
  int64_t seqlen_k;
  int64_t nheads;
  int64_t compute_units;
  int64_t num_splits;
  int32_t coded;
  int32_t scaled;
} fa_plan_mla_call;

typedef struct fa_plan_bwd_call {
  const char* arch;
  const char* dtype;
  int64_t head_dim;
  int32_t featured;
  int32_t deterministic;
  int32_t masked;
  const char* wanted;
} fa_plan_bwd_call;
