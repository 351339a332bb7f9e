#include "host/arguments/fwd_arguments.hpp"

#include <string>

#include "host/arguments/common_arguments.hpp"

namespace fa {

namespace {

constexpr std::int64_t kMaxPages = INT32_MAX;

// Sizes derived from the shapes of a call.
struct Sizes {
  bool ragged_q, ragged_k, paged;
  std::int64_t batch, seqlen_q, rows_q, nheads, head_dim;
  std::int64_t v_head_dim;  // of v and out
  std::int64_t batch_k, seqlen_k, rows_k, nheads_k;
  std::int64_t page, num_pages;
};

Sizes sizes_of(const fa_fwd_call& call) {
  Sizes s{};
  s.paged = given(call.block_table);
  s.ragged_q = given(call.cu_seqlens_q);
  s.ragged_k = given(call.cu_seqlens_k) && !s.paged;
  const int q = s.ragged_q ? 0 : 1, k = s.ragged_k ? 0 : 1;
  s.batch = s.ragged_q ? call.cu_seqlens_q.size[0] - 1 : call.q.size[0];
  s.rows_q = call.q.size[q], s.nheads = call.q.size[q + 1], s.head_dim = call.q.size[q + 2];
  s.seqlen_q = s.ragged_q ? call.max_seqlen_q : s.rows_q;
  s.nheads_k = call.k.size[k + 1], s.v_head_dim = call.v.size[k + 2];
  s.batch_k = s.ragged_k || s.paged ? s.batch : call.k.size[0];
  if (s.paged) {
    s.num_pages = call.k.size[0], s.page = call.k.size[1];
    const std::int64_t blocks = call.block_table.size[1];
    s.seqlen_k = blocks > 0 && s.page > kMaxLength / blocks ? kMaxLength + 1 : blocks * s.page;
    if (s.num_pages == 0) s.seqlen_k = 0;
  } else {
    s.rows_k = call.k.size[k];
    s.seqlen_k = s.batch_k > 0 ? s.rows_k : 0;
  }
  return s;
}

void require_dims(Problems& problems, const fa_fwd_call& call) {
  const bool paged = given(call.block_table);
  const int q_dims = given(call.cu_seqlens_q) ? 3 : 4;
  const int k_dims = given(call.cu_seqlens_k) && !paged ? 3 : 4;
  problems.expect_dims({"q", call.q}, q_dims);
  problems.expect_dims({"k", call.k}, k_dims);
  problems.expect_dims({"v", call.v}, k_dims);
  problems.expect_dims({"out", call.out}, q_dims);
  problems.expect_dims({"lse", call.lse}, q_dims - 1);
  const auto optional = [&](const Named& named, int dims) {
    if (given(named.tensor)) problems.expect_dims(named, dims);
  };
  optional({"alibi_slopes", call.alibi_slopes}, call.alibi_slopes.dims == 1 ? 1 : 2);
  optional({"cu_seqlens_q", call.cu_seqlens_q}, 1);
  optional({"cu_seqlens_k", call.cu_seqlens_k}, 1);
  optional({"seqused_k", call.seqused_k}, 1);
  optional({"leftpad_k", call.leftpad_k}, 1);
  optional({"block_table", call.block_table}, 2);
  optional({"cache_batch_idx", call.cache_batch_idx}, 1);
  optional({"attn_mask", call.attn_mask}, 4);
  optional({"sink", call.sink}, 1);
  optional({"partial_out", call.partial_out}, q_dims + 1);
  optional({"partial_lse", call.partial_lse}, q_dims);
}

// Combinations of arguments.
void require_together(Problems& problems, const fa_fwd_call& call) {
  const bool paged = given(call.block_table);
  problems.add_unless(given(call.partial_out) == given(call.partial_lse),
                      [] { return std::string("partial_out, partial_lse: expected both or none"); });
  problems.add_unless(!given(call.cu_seqlens_k) || given(call.cu_seqlens_q),
                      [] { return std::string("cu_seqlens_k: expected only together with cu_seqlens_q"); });
  problems.add_unless(!given(call.cu_seqlens_q) || given(call.cu_seqlens_k) || paged, [] {
    return std::string("cu_seqlens_q: expected only together with cu_seqlens_k or block_table");
  });
  problems.add_unless(!given(call.leftpad_k) || !paged,
                      [] { return std::string("leftpad_k: expected none together with block_table"); });
  problems.add_unless(!given(call.cache_batch_idx) || (!paged && !given(call.cu_seqlens_k)), [] {
    return std::string("cache_batch_idx: expected none together with block_table or cu_seqlens_k");
  });
  const bool others = given(call.alibi_slopes) || given(call.cu_seqlens_q) || given(call.seqused_k) ||
                      given(call.leftpad_k) || paged || given(call.cache_batch_idx) ||
                      given(call.partial_lse) || call.softcap != 0;
  problems.add_unless(!given(call.attn_mask) || !others, [] {
    return std::string(
        "attn_mask: expected none of the other optional tensors but rng_state and sink, and no softcap");
  });
}

void require_dims_and_types(const fa_fwd_call& call) {
  Problems problems;
  require_types(problems, call);
  require_dims(problems, call);
  require_together(problems, call);
  require_dropout(problems, call.rng_state, call.dropout_p);
  problems.raise_if_any();
}

void require_shapes(const fa_fwd_call& call, const Sizes& s) {
  Problems problems;
  const std::int64_t parts = call.partial_lse.size[0];
  const Shape lse = s.ragged_q ? Shape{s.nheads, s.rows_q} : Shape{s.batch, s.nheads, s.rows_q};
  Shape k = shape(call.k);
  k.back() = s.head_dim;
  if (!s.ragged_k && !s.paged && !given(call.cache_batch_idx)) k.front() = s.batch;
  Shape v = k, out = shape(call.q);
  v.back() = out.back() = s.v_head_dim;
  problems.expect_shape({"k", call.k}, k);
  problems.expect_shape({"v", call.v}, v);
  problems.expect_shape({"out", call.out}, out);
  problems.expect_shape({"lse", call.lse}, lse);
  const auto optional = [&](const Named& named, const Shape& sizes) {
    if (given(named.tensor)) problems.expect_shape(named, sizes);
  };
  problems.add_unless(!s.ragged_q || s.batch >= 0,
                      [] { return std::string("cu_seqlens_q: expected shape (batch + 1), got shape (0)"); });
  optional({"cu_seqlens_k", call.cu_seqlens_k}, {s.batch + 1});
  optional({"seqused_k", call.seqused_k}, {s.batch});
  optional({"leftpad_k", call.leftpad_k}, {s.batch});
  optional({"cache_batch_idx", call.cache_batch_idx}, {s.batch});
  optional({"rng_state", call.rng_state}, {2});
  optional({"sink", call.sink}, {s.nheads});
  Shape partial = s.ragged_q ? Shape{parts, s.nheads, s.rows_q} : Shape{parts, s.batch, s.nheads, s.rows_q};
  optional({"partial_lse", call.partial_lse}, partial);
  partial.push_back(s.v_head_dim);
  optional({"partial_out", call.partial_out}, partial);
  if (given(call.attn_mask)) {
    optional({"attn_mask", call.attn_mask},
             mask_shape(call.attn_mask, s.batch, s.nheads, s.rows_q, s.seqlen_k));
  }
  if (s.paged) optional({"block_table", call.block_table}, {s.batch, call.block_table.size[1]});
  if (call.alibi_slopes.dims == 1) optional({"alibi_slopes", call.alibi_slopes}, {s.nheads});
  if (call.alibi_slopes.dims == 2) optional({"alibi_slopes", call.alibi_slopes}, {s.batch, s.nheads});
  require_grouped_heads(problems, s.nheads, s.nheads_k);
  if (s.paged) require_pages(problems, "k", s.page);
  problems.raise_if_any();
}

void require_limits(const fa_fwd_call& call, const Sizes& s) {
  Problems problems;
  require_readable_mask(problems, call.attn_mask, call.softmax_scale);
  problems.expect_at_most("batch", s.batch, kMaxGridYZ);
  problems.expect_at_most("nheads", s.nheads, kMaxGridYZ);
  problems.expect_at_most("rows of q", s.rows_q, kMaxLength);
  problems.expect_at_most("rows of k", s.rows_k, kMaxLength);
  problems.expect_at_most("pages", s.num_pages, kMaxPages);
  problems.expect_at_most("keys of a sequence's pages", s.seqlen_k, kMaxLength);
  problems.expect_at_most("batch of k", s.batch_k, kMaxLength);
  require_parts(problems, call.partial_lse, call.partial_out);
  problems.add_unless(s.seqlen_q >= 0,
                      [&] { return "max_seqlen_q: expected at least 0, got " + std::to_string(s.seqlen_q); });
  require_scores(problems, call.softmax_scale, call.softcap);
  problems.add_unless(!given(call.cu_seqlens_k) || call.max_seqlen_k >= 0, [&] {
    return "max_seqlen_k: expected at least 0, got " + std::to_string(call.max_seqlen_k);
  });
  for (const Named& each :
       {Named{"q", call.q}, Named{"k", call.k}, Named{"v", call.v}, Named{"out", call.out}}) {
    problems.expect_elements(each, kElementBytes);
  }
  require_contiguous(problems, call);
  problems.raise_if_any();
}

float* written(const fa_tensor& tensor) { return given(tensor) ? static_cast<float*>(tensor.data) : nullptr; }

void set_tensors(FwdParams& p, const fa_fwd_call& call) {
  p.q = call.q.data, p.k = call.k.data, p.v = call.v.data, p.out = call.out.data;
  p.lse = static_cast<float*>(call.lse.data);
  p.alibi_slopes = data<float>(call.alibi_slopes);
  p.cu_seqlens_q = data<std::int32_t>(call.cu_seqlens_q);
  p.cu_seqlens_k = data<std::int32_t>(call.cu_seqlens_k);
  p.seqused_k = data<std::int32_t>(call.seqused_k);
  p.leftpad_k = data<std::int32_t>(call.leftpad_k);
  p.block_table = data<std::int32_t>(call.block_table);
  p.cache_batch_idx = data<std::int32_t>(call.cache_batch_idx);
  p.rng_state = data<std::int64_t>(call.rng_state);
  p.sink = data<float>(call.sink);
  p.partial_out = written(call.partial_out);
  p.partial_lse = written(call.partial_lse);
  const Strides q = strides(call.q), k = strides(call.k), v = strides(call.v), o = strides(call.out);
  p.q_batch = q.batch, p.q_row = q.row, p.q_head = q.head;
  p.k_batch = k.batch, p.k_row = k.row, p.k_head = k.head;
  p.v_batch = v.batch, p.v_row = v.row, p.v_head = v.head;
  p.o_batch = o.batch, p.o_row = o.row, p.o_head = o.head;
  p.table_batch = call.block_table.stride[0];
  p.alibi_batch = call.alibi_slopes.dims == 2 ? call.alibi_slopes.stride[0] : 0;
}

void set_sizes(FwdParams& p, const Sizes& s) {
  p.seqlen_q = static_cast<std::int32_t>(s.seqlen_q < s.rows_q ? s.seqlen_q : s.rows_q);
  p.seqlen_k = static_cast<std::int32_t>(s.seqlen_k);
  p.rows_q = static_cast<std::int32_t>(s.rows_q);
  p.rows_k = static_cast<std::int32_t>(s.rows_k);
  p.page = static_cast<std::int32_t>(s.page);
  p.num_pages = static_cast<std::int32_t>(s.num_pages);
  p.batch_k = static_cast<std::int32_t>(s.batch_k);
  p.nheads = static_cast<std::int32_t>(s.nheads);
  p.nheads_k = static_cast<std::int32_t>(s.nheads_k);
  p.lse_head = s.rows_q;
  p.lse_batch = s.ragged_q ? 0 : s.nheads * s.rows_q;
  p.partial_split = (s.ragged_q ? 1 : s.batch) * s.nheads * s.rows_q;
}

}  // namespace

FwdArguments fwd_arguments(const fa_fwd_call& call) {
  require_well_formed(call, "fwd");
  require_dims_and_types(call);
  const Sizes sizes = sizes_of(call);
  require_shapes(call, sizes);
  require_limits(call, sizes);
  FwdArguments arguments{};
  arguments.batch = sizes.batch;
  arguments.head_dim = sizes.head_dim, arguments.v_head_dim = sizes.v_head_dim;
  arguments.max_seqlen_q = sizes.seqlen_q;
  arguments.max_seqlen_k = given(call.cu_seqlens_k) ? call.max_seqlen_k : sizes.seqlen_k;
  arguments.aligned = aligned(call.q) && aligned(call.k) && aligned(call.v) && aligned(call.out);
  FwdParams& params = arguments.params;
  set_tensors(params, call);
  set_sizes(params, sizes);
  set_options(params, call);
  arguments.masked = given(call.attn_mask);
  if (arguments.masked) set_mask(arguments.mask, call.attn_mask);
  params.splits = given(call.partial_lse) ? static_cast<std::int32_t>(call.partial_lse.size[0]) : 1;
  params.rare = rare_in(params);
  return arguments;
}

}  // namespace fa
