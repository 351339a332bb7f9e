#include "host/arguments/mla_arguments.hpp"

#include <string>

#include "host/arguments/common_arguments.hpp"

namespace fa {

namespace {

constexpr const char* kFunction = "mla";

// Sizes derived from the shapes of a call.
struct Sizes {
  bool paged, scaled;  // scaled: rows that hold their scales
  std::int64_t batch, seqlen_q, nheads, head_dim, value_dim;
  std::int64_t places, rows, seqlen_k;  // rows: of a page, or of a sequence's cache
  std::int64_t row_elements;            // of the cache
};

Sizes sizes_of(const fa_mla_call& call) {
  Sizes s{};
  s.paged = given(call.block_table);
  s.batch = call.q.size[0], s.seqlen_q = call.q.size[1];
  s.nheads = call.q.size[2], s.head_dim = call.q.size[3];
  s.value_dim = s.head_dim > kLatentRest ? s.head_dim - kLatentRest : 0;
  s.scaled = call.kv_cache.dtype == FA_E4M3FN && call.kv_cache.size[3] == kScaledRowBytes &&
             s.head_dim != kScaledRowBytes;
  s.row_elements = s.scaled ? kScaledRowBytes : s.head_dim;
  s.places = call.kv_cache.size[0], s.rows = call.kv_cache.size[1];
  s.seqlen_k = s.rows;
  if (s.paged) {
    const std::int64_t blocks = call.block_table.size[1];
    s.seqlen_k = blocks > 0 && s.rows > kMaxLength / blocks ? kMaxLength + 1 : blocks * s.rows;
    if (s.places == 0) s.seqlen_k = 0;
  }
  return s;
}

void require_dims_and_types(const fa_mla_call& call) {
  Problems problems;
  require_types(problems, call);
  for (const Named& each : {Named{"q", call.q}, Named{"kv_cache", call.kv_cache}, Named{"out", call.out}}) {
    problems.expect_dims(each, 4);
  }
  problems.expect_dims({"lse", call.lse}, 3);
  const auto optional = [&](const Named& named, int dims) {
    if (given(named.tensor)) problems.expect_dims(named, dims);
  };
  optional({"cache_seqlens", call.cache_seqlens}, 1);
  optional({"block_table", call.block_table}, 2);
  optional({"kv_descale", call.kv_descale}, call.kv_descale.dims == 3 ? 3 : 2);
  problems.add_unless(is_coded(call.kv_cache.dtype) || !given(call.kv_descale), [&] {
    return std::string("kv_descale: expected none beside kv_cache of ") + dtype_name(call.kv_cache.dtype);
  });
  optional({"partial_out", call.partial_out}, 5);
  optional({"partial_lse", call.partial_lse}, 4);
  problems.add_unless(given(call.partial_out) == given(call.partial_lse),
                      [] { return std::string("partial_out, partial_lse: expected both or none"); });
  problems.raise_if_any(kFunction);
}

void require_shapes(const fa_mla_call& call, const Sizes& s) {
  Problems problems;
  problems.add_unless(s.head_dim > kLatentRest, [&] {
    return "q: expected a headdim above " + std::to_string(kLatentRest) + ", got " +
           std::to_string(s.head_dim);
  });
  problems.add_unless(s.nheads >= 1, [] { return std::string("q: expected at least 1 head, got 0"); });
  problems.expect_shape({"kv_cache", call.kv_cache},
                        {s.paged ? s.places : s.batch, s.rows, 1, s.row_elements});
  problems.expect_shape({"out", call.out}, {s.batch, s.seqlen_q, s.nheads, s.value_dim});
  problems.expect_shape({"lse", call.lse}, {s.batch, s.nheads, s.seqlen_q});
  const auto optional = [&](const Named& named, const Shape& sizes) {
    if (given(named.tensor)) problems.expect_shape(named, sizes);
  };
  const std::int64_t splits = call.partial_lse.size[0];
  optional({"cache_seqlens", call.cache_seqlens}, {s.batch});
  optional({"block_table", call.block_table}, {s.batch, call.block_table.size[1]});
  problems.add_unless(!s.scaled || !given(call.kv_descale), [] {
    return "kv_descale: expected none beside rows of " + std::to_string(kScaledRowBytes) +
           " bytes, which hold their scales";
  });
  const bool per_key = call.kv_descale.dims == 3;
  optional({"kv_descale", call.kv_descale}, per_key ? Shape{s.places, s.rows, 1} : Shape{s.batch, 1});
  if (given(call.kv_descale)) problems.expect_address({"kv_descale", call.kv_descale}, sizeof(float));
  optional({"partial_lse", call.partial_lse}, {splits, s.batch, s.nheads, s.seqlen_q});
  optional({"partial_out", call.partial_out}, {splits, s.batch, s.nheads, s.seqlen_q, s.value_dim});
  if (s.paged) require_pages(problems, "kv_cache", s.rows);
  problems.raise_if_any(kFunction);
}

void require_limits(const fa_mla_call& call, const Sizes& s) {
  Problems problems;
  problems.expect_at_most("batch", s.batch, kMaxGridYZ);
  problems.expect_at_most("nheads", s.nheads, kMaxGridYZ);
  problems.expect_at_most("rows of q", s.seqlen_q, kMaxLength);
  problems.add_unless(s.seqlen_q <= kMaxLength / s.nheads, [&] {
    return "rows of q times its heads: expected at most " + std::to_string(kMaxLength) + ", got " +
           std::to_string(s.seqlen_q) + " * " + std::to_string(s.nheads);
  });
  problems.expect_at_most("keys that a sequence's cache can have", s.seqlen_k, kMaxLength);
  problems.expect_at_most("sequences or blocks of the cache", s.places, INT32_MAX);
  require_parts(problems, call.partial_lse, call.partial_out);
  require_scores(problems, call.softmax_scale, 0);
  for (const Named& each : {Named{"q", call.q}, Named{"kv_cache", call.kv_cache}, Named{"out", call.out}}) {
    require_aligned(problems, each);
  }
  problems.expect_own_memory({"out", call.out});
  require_contiguous(problems, call);
  problems.raise_if_any(kFunction);
}

void set_tensors(FwdParams& p, const fa_mla_call& call) {
  p.q = call.q.data, p.k = p.v = call.kv_cache.data, p.out = call.out.data;
  p.lse = static_cast<float*>(call.lse.data);
  p.seqused_k = data<std::int32_t>(call.cache_seqlens);
  p.block_table = data<std::int32_t>(call.block_table);
  p.partial_out = given(call.partial_out) ? static_cast<float*>(call.partial_out.data) : nullptr;
  p.partial_lse = given(call.partial_lse) ? static_cast<float*>(call.partial_lse.data) : nullptr;
  const Strides q = strides(call.q), k = strides(call.kv_cache), o = strides(call.out);
  p.q_batch = q.batch, p.q_row = q.row, p.q_head = q.head;
  p.k_batch = p.v_batch = k.batch, p.k_row = p.v_row = k.row, p.k_head = p.v_head = k.head;
  p.o_batch = o.batch, p.o_row = o.row, p.o_head = o.head;
  p.table_batch = call.block_table.stride[0];
}

void set_sizes(FwdParams& p, const Sizes& s) {
  p.seqlen_q = p.rows_q = static_cast<std::int32_t>(s.seqlen_q);
  p.seqlen_k = static_cast<std::int32_t>(s.batch > 0 ? s.seqlen_k : 0);
  p.rows_k = s.paged ? 0 : static_cast<std::int32_t>(s.rows);
  p.page = s.paged ? static_cast<std::int32_t>(s.rows) : 0;
  p.num_pages = s.paged ? static_cast<std::int32_t>(s.places) : 0;
  p.batch_k = static_cast<std::int32_t>(s.batch);
  p.nheads = static_cast<std::int32_t>(s.nheads);
  p.nheads_k = 1;
  p.lse_head = s.seqlen_q;
  p.lse_batch = s.nheads * s.seqlen_q;
  p.partial_split = s.batch * s.nheads * s.seqlen_q;
}

}  // namespace

FwdArguments mla_arguments(const fa_mla_call& call) {
  require_well_formed(call, kFunction);
  require_dims_and_types(call);
  const Sizes sizes = sizes_of(call);
  require_shapes(call, sizes);
  require_limits(call, sizes);
  FwdArguments arguments{};
  arguments.batch = sizes.batch, arguments.head_dim = sizes.head_dim;
  arguments.max_seqlen_q = sizes.seqlen_q, arguments.max_seqlen_k = sizes.seqlen_k;
  arguments.aligned = true;
  FwdParams& params = arguments.params;
  set_tensors(params, call);
  set_sizes(params, sizes);
  params.scale = call.softmax_scale, params.dropout_scale = 1;
  params.window_left = kNoWindow, params.window_right = call.causal != 0 ? 0 : kNoWindow;
  params.splits = given(call.partial_lse) ? static_cast<std::int32_t>(call.partial_lse.size[0]) : 1;
  arguments.scaled = sizes.scaled;
  arguments.coded = is_coded(call.kv_cache.dtype) && !sizes.scaled;
  if (arguments.coded) set_codes(arguments.codes, call.kv_cache, call.kv_descale, call.kv_descale);
  return arguments;
}

}  // namespace fa
