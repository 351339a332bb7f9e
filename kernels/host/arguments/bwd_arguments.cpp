#include "host/arguments/bwd_arguments.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "host/arguments/common_arguments.hpp"

namespace fa {

namespace {

constexpr const char* kFunction = "bwd";

// Sizes derived from the shapes of a call.
struct Sizes {
  bool ragged;
  std::int64_t batch, seqlen_q, seqlen_k, rows_q, rows_k, nheads, nheads_k, head_dim;
  std::int64_t v_head_dim;  // of v, out and their gradients
};

Sizes sizes_of(const fa_bwd_call& call) {
  Sizes s{};
  s.ragged = given(call.cu_seqlens_q);
  const int rows = s.ragged ? 0 : 1;
  s.batch = s.ragged ? call.cu_seqlens_q.size[0] - 1 : call.q.size[0];
  s.rows_q = call.q.size[rows], s.nheads = call.q.size[rows + 1], s.head_dim = call.q.size[rows + 2];
  s.rows_k = call.k.size[rows], s.nheads_k = call.k.size[rows + 1];
  s.v_head_dim = call.v.size[rows + 2];
  s.seqlen_q = s.ragged ? call.max_seqlen_q : s.rows_q;
  s.seqlen_k = s.ragged ? call.max_seqlen_k : s.rows_k;
  return s;
}

std::int64_t sums(const Sizes& s) { return bwd_sums({s.ragged, s.batch, s.rows_q, s.nheads, s.head_dim}); }

// All tensors with rows of heads: inputs, then outputs.
std::array<Named, 8> rows_of(const fa_bwd_call& call) {
  return {Named{"q", call.q},       Named{"k", call.k},   Named{"v", call.v},   Named{"out", call.out},
          Named{"dout", call.dout}, Named{"dq", call.dq}, Named{"dk", call.dk}, Named{"dv", call.dv}};
}

void require_dims_and_types(const fa_bwd_call& call) {
  Problems problems;
  require_types(problems, call);
  const int dims = given(call.cu_seqlens_q) ? 3 : 4;
  for (const Named& each : rows_of(call)) problems.expect_dims(each, dims);
  problems.expect_dims({"lse", call.lse}, dims - 1);
  problems.expect_dims({"delta", call.delta}, dims - 1);
  const auto optional = [&](const Named& named, int wanted) {
    if (given(named.tensor)) problems.expect_dims(named, wanted);
  };
  optional({"dq_sums", call.dq_sums}, 1);
  optional({"alibi_slopes", call.alibi_slopes}, call.alibi_slopes.dims == 1 ? 1 : 2);
  optional({"cu_seqlens_q", call.cu_seqlens_q}, 1);
  optional({"cu_seqlens_k", call.cu_seqlens_k}, 1);
  optional({"attn_mask", call.attn_mask}, 4);
  optional({"dscores", call.dscores}, 4);
  const bool others =
      given(call.dq_sums) || given(call.alibi_slopes) || given(call.cu_seqlens_q) || call.softcap != 0;
  problems.add_unless(!given(call.attn_mask) || !others, [] {
    return std::string(
        "attn_mask: expected none of the other optional tensors but dscores and rng_state, and no softcap");
  });
  problems.add_unless(given(call.attn_mask) || !given(call.dscores),
                      [] { return std::string("dscores: expected together with attn_mask"); });
  problems.add_unless(!given(call.dscores) || call.attn_mask.dtype != FA_BOOL || !given(call.attn_mask), [] {
    return std::string("dscores: expected with a bias, got a boolean attn_mask, which has no gradient");
  });
  problems.add_unless(given(call.cu_seqlens_q) == given(call.cu_seqlens_k),
                      [] { return std::string("cu_seqlens_q, cu_seqlens_k: expected both or none"); });
  require_dropout(problems, call.rng_state, call.dropout_p);
  problems.raise_if_any(kFunction);
}

void require_shapes(const fa_bwd_call& call, const Sizes& s) {
  Problems problems;
  const Shape lse = s.ragged ? Shape{s.nheads, s.rows_q} : Shape{s.batch, s.nheads, s.rows_q};
  Shape k = shape(call.k);
  k.back() = s.head_dim;
  if (!s.ragged) k.front() = s.batch;
  Shape v = k, out = shape(call.q);
  v.back() = out.back() = s.v_head_dim;
  for (const Named& each : {Named{"k", call.k}, Named{"dk", call.dk}}) problems.expect_shape(each, k);
  for (const Named& each : {Named{"v", call.v}, Named{"dv", call.dv}}) problems.expect_shape(each, v);
  for (const Named& each : {Named{"out", call.out}, Named{"dout", call.dout}}) {
    problems.expect_shape(each, out);
  }
  problems.expect_shape({"dq", call.dq}, shape(call.q));
  problems.expect_shape({"lse", call.lse}, lse);
  problems.expect_shape({"delta", call.delta}, lse);
  problems.add_unless(!s.ragged || s.batch >= 0,
                      [] { return std::string("cu_seqlens_q: expected shape (batch + 1), got shape (0)"); });
  if (s.ragged) problems.expect_shape({"cu_seqlens_k", call.cu_seqlens_k}, {s.batch + 1});
  if (given(call.dq_sums)) problems.expect_shape({"dq_sums", call.dq_sums}, {sums(s)});
  if (given(call.rng_state)) problems.expect_shape({"rng_state", call.rng_state}, {2});
  const Named slopes{"alibi_slopes", call.alibi_slopes};
  if (call.alibi_slopes.dims == 1) problems.expect_shape(slopes, {s.nheads});
  if (call.alibi_slopes.dims == 2) problems.expect_shape(slopes, {s.batch, s.nheads});
  const Named mask{"attn_mask", call.attn_mask};
  if (given(call.attn_mask)) {
    problems.expect_shape(mask, mask_shape(call.attn_mask, s.batch, s.nheads, s.rows_q, s.seqlen_k));
  }
  if (given(call.dscores)) {
    problems.expect_shape({"dscores", call.dscores}, {s.batch, s.nheads, s.rows_q, mask_keys(s.seqlen_k)});
  }
  require_grouped_heads(problems, s.nheads, s.nheads_k);
  problems.raise_if_any(kFunction);
}

void require_limits(const fa_bwd_call& call, const Sizes& s) {
  Problems problems;
  problems.expect_at_most("batch", s.batch, kMaxGridYZ);
  problems.expect_at_most("nheads", s.nheads, kMaxGridYZ);
  problems.expect_at_most("rows of q", s.rows_q, kMaxLength);
  problems.expect_at_most("rows of k", s.rows_k, kMaxLength);
  problems.add_unless(s.seqlen_q >= 0,
                      [&] { return "max_seqlen_q: expected at least 0, got " + std::to_string(s.seqlen_q); });
  problems.add_unless(s.seqlen_k >= 0,
                      [&] { return "max_seqlen_k: expected at least 0, got " + std::to_string(s.seqlen_k); });
  require_scores(problems, call.softmax_scale, call.softcap);
  require_readable_mask(problems, call.attn_mask, call.softmax_scale);
  problems.add_unless(!given(call.dscores) || s.rows_k < kMaxRowStride, [&] {
    return "rows of k: expected less than 2^24 beside dscores, got " + std::to_string(s.rows_k);
  });
  for (const Named& each : rows_of(call)) require_aligned(problems, each);
  for (const Named& each : {Named{"dq", call.dq}, Named{"dk", call.dk}, Named{"dv", call.dv}}) {
    problems.expect_own_memory(each);
  }
  require_contiguous(problems, call);
  problems.raise_if_any(kFunction);
}

BwdInput input(const fa_tensor& tensor) {
  const Strides s = strides(tensor);
  return {tensor.data, s.batch, s.row, s.head};
}

BwdGradient gradient(const fa_tensor& tensor) {
  const Strides s = strides(tensor);
  return {tensor.data, s.batch, s.row, s.head};
}

void set_tensors(BwdParams& p, const fa_bwd_call& call) {
  p.q = input(call.q), p.k = input(call.k), p.v = input(call.v);
  p.out = input(call.out), p.dout = input(call.dout);
  p.dq = gradient(call.dq), p.dk = gradient(call.dk), p.dv = gradient(call.dv);
  p.lse = static_cast<const float*>(call.lse.data);
  p.delta = static_cast<float*>(call.delta.data);
  p.dq_sums = given(call.dq_sums) ? static_cast<float*>(call.dq_sums.data) : nullptr;
  p.alibi_slopes = data<float>(call.alibi_slopes);
  p.cu_seqlens_q = data<std::int32_t>(call.cu_seqlens_q);
  p.cu_seqlens_k = data<std::int32_t>(call.cu_seqlens_k);
  p.rng_state = data<std::int64_t>(call.rng_state);
  p.alibi_batch = call.alibi_slopes.dims == 2 ? call.alibi_slopes.stride[0] : 0;
}

void set_sizes(BwdParams& p, const Sizes& s) {
  p.seqlen_q = static_cast<std::int32_t>(std::min(s.seqlen_q, s.rows_q));
  p.seqlen_k = static_cast<std::int32_t>(std::min(s.seqlen_k, s.rows_k));
  p.rows_q = static_cast<std::int32_t>(s.rows_q);
  p.rows_k = static_cast<std::int32_t>(s.rows_k);
  p.nheads = static_cast<std::int32_t>(s.nheads);
  p.nheads_k = static_cast<std::int32_t>(s.nheads_k);
  p.head_dim = static_cast<std::int32_t>(s.v_head_dim);
  p.dq_blocks = sum_blocks(s.ragged, s.batch, s.rows_q);
  p.lse_head = s.rows_q;
  p.lse_batch = s.ragged ? 0 : s.nheads * s.rows_q;
}

}  // namespace

std::int64_t bwd_sums(const BwdSizes& s) {
  return sum_blocks(s.ragged, s.batch, s.rows_q) * kSumRows * s.nheads * s.head_dim;
}

BwdArguments bwd_arguments(const fa_bwd_call& call) {
  require_well_formed(call, kFunction);
  require_dims_and_types(call);
  const Sizes sizes = sizes_of(call);
  require_shapes(call, sizes);
  require_limits(call, sizes);
  BwdArguments arguments{};
  arguments.batch = sizes.batch, arguments.head_dim = sizes.head_dim;
  BwdParams& params = arguments.params;
  set_tensors(params, call);
  set_sizes(params, sizes);
  set_options(params, call);
  arguments.masked = given(call.attn_mask);
  if (arguments.masked) {
    set_mask(arguments.mask, call.attn_mask);
    arguments.mask.dscores = given(call.dscores) ? static_cast<float*>(call.dscores.data) : nullptr;
  }
  return arguments;
}

}  // namespace fa
