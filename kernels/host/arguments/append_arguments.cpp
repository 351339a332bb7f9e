#include "host/arguments/append_arguments.hpp"

#include <algorithm>
#include <string>

#include "device/call/params.hpp"
#include "host/arguments/common_arguments.hpp"

namespace fa {

namespace {

constexpr const char* kFunction = "append";
constexpr std::int64_t kMaxPlaces = INT32_MAX;

// Sizes derived from the shapes of a call.
struct Sizes {
  bool paged;
  std::int64_t batch, rows_new, rows_q, nheads, nheads_k, head_dim;
  std::int64_t places, page, capacity;
  std::int64_t rotary_rows, rotary_half;
};

Sizes sizes_of(const fa_append_call& call) {
  Sizes s{};
  s.paged = given(call.block_table);
  s.batch = call.k.size[0], s.rows_new = call.k.size[1];
  s.nheads_k = call.k.size[2], s.head_dim = call.k.size[3];
  s.rows_q = call.q.size[1], s.nheads = call.q.size[2];
  s.places = call.k_cache.size[0];
  s.page = s.paged ? call.k_cache.size[1] : 0;
  s.capacity = s.paged ? product(call.block_table.size[1], s.page, kMaxLength) : call.k_cache.size[1];
  if (given(call.cos)) s.rotary_rows = call.cos.size[0], s.rotary_half = call.cos.size[1];
  return s;
}

bool coded(const fa_append_call& call) { return is_coded(call.k_cache.dtype); }
bool per_key(const fa_append_call& call) { return call.k_descale.dims == 3; }

void require_codes(Problems& problems, const fa_append_call& call) {
  problems.add_unless(call.v_cache.dtype == call.k_cache.dtype, [&] {
    return std::string("v_cache: expected dtype ") + dtype_name(call.k_cache.dtype) + " like k_cache, got " +
           dtype_name(call.v_cache.dtype);
  });
  problems.add_unless(coded(call) || !(given(call.k_descale) || given(call.v_descale)), [&] {
    return std::string("k_descale, v_descale: expected none beside a cache of ") +
           dtype_name(call.k_cache.dtype);
  });
  require_descale_dims(problems, call.k_descale, call.v_descale);
}

void require_dims_and_types(const fa_append_call& call) {
  Problems problems;
  require_types(problems, call);
  require_codes(problems, call);
  for (const Named& each : {Named{"q", call.q}, Named{"k_cache", call.k_cache},
                            Named{"v_cache", call.v_cache}, Named{"k", call.k}, Named{"v", call.v}}) {
    problems.expect_dims(each, 4);
  }
  problems.expect_dims({"cache_seqlens", call.cache_seqlens}, 1);
  const auto optional = [&](const Named& named, int dims) {
    if (given(named.tensor)) problems.expect_dims(named, dims);
  };
  optional({"cos", call.cos}, 2);
  optional({"sin", call.sin}, 2);
  optional({"block_table", call.block_table}, 2);
  optional({"cache_batch_idx", call.cache_batch_idx}, 1);
  optional({"q_out", call.q_out}, 4);
  problems.add_unless(given(call.cos) == given(call.sin) && given(call.cos) == given(call.q_out),
                      [] { return std::string("cos, sin, q_out: expected all or none"); });
  problems.add_unless(!given(call.cache_batch_idx) || !given(call.block_table),
                      [] { return std::string("cache_batch_idx: expected none together with block_table"); });
  problems.raise_if_any(kFunction);
}

void require_shapes(const fa_append_call& call, const Sizes& s) {
  Problems problems;
  const bool any_place = s.paged || given(call.cache_batch_idx);
  const Shape cache{any_place ? s.places : s.batch, call.k_cache.size[1], s.nheads_k, s.head_dim};
  problems.expect_shape({"q", call.q}, {s.batch, s.rows_q, s.nheads, s.head_dim});
  problems.expect_shape({"k_cache", call.k_cache}, cache);
  problems.expect_shape({"v_cache", call.v_cache}, cache);
  problems.expect_shape({"v", call.v}, shape(call.k));
  problems.expect_shape({"cache_seqlens", call.cache_seqlens}, {s.batch});
  const auto optional = [&](const Named& named, const Shape& sizes) {
    if (given(named.tensor)) problems.expect_shape(named, sizes);
  };
  optional({"sin", call.sin}, shape(call.cos));
  optional({"q_out", call.q_out}, shape(call.q));
  optional({"block_table", call.block_table}, {s.batch, call.block_table.size[1]});
  optional({"cache_batch_idx", call.cache_batch_idx}, {s.batch});
  require_descale_shapes(problems, call.k_descale, call.v_descale, {s.batch, s.nheads_k}, call.k_cache);
  problems.add_unless(s.head_dim >= 1 && s.head_dim <= kMaxWideHeadDim, [&] {
    return "k: expected a headdim from 1 to " + std::to_string(kMaxWideHeadDim) + ", got " +
           std::to_string(s.head_dim);
  });
  problems.add_unless(s.rotary_half <= s.head_dim / 2, [&] {
    return "cos: expected a rotary_dim / 2 of at most " + std::to_string(s.head_dim / 2) + ", got " +
           std::to_string(s.rotary_half);
  });
  problems.add_unless(!given(call.cos) || s.rotary_rows > 0,
                      [] { return std::string("cos: expected at least 1 row, got none"); });
  if (s.paged) require_pages(problems, "k_cache", s.page);
  problems.raise_if_any(kFunction);
}

void require_limits(const fa_append_call& call, const Sizes& s) {
  Problems problems;
  problems.expect_at_most("batch", s.batch, kMaxGridYZ);
  problems.expect_at_most("rows of k times its heads", product(s.rows_new, s.nheads_k, kMaxLength),
                          kMaxLength);
  problems.expect_at_most("rows of q times its heads", product(s.rows_q, s.nheads, kMaxLength), kMaxLength);
  problems.expect_at_most("keys that a sequence's cache can have", s.capacity, kMaxLength);
  problems.expect_at_most("rows or blocks of the cache", s.places, kMaxPlaces);
  problems.expect_at_most("rows of cos", s.rotary_rows, kMaxLength);
  for (const Described& each : tensors_of(call)) {
    if (given(each.named.tensor) && each.holds != Holds::fp32) {
      problems.expect_elements(each.named, element_bytes(each.named.tensor.dtype));
    }
  }
  for (const Named& each :
       {Named{"k_cache", call.k_cache}, Named{"v_cache", call.v_cache}, Named{"q_out", call.q_out}}) {
    problems.expect_own_memory(each);
  }
  if (per_key(call)) {
    problems.expect_own_memory({"k_descale", call.k_descale});
    problems.expect_own_memory({"v_descale", call.v_descale});
  }
  problems.raise_if_any(kFunction);
}

bool vectors(const fa_append_call& call, const Sizes& s) {
  bool good = s.head_dim % kAppendWidth == 0 && s.rotary_half % kAppendWidth == 0;
  for (const fa_tensor* each : {&call.k_cache, &call.v_cache, &call.k, &call.v}) {
    good &= in_units(*each, kAppendWidth);
  }
  if (!given(call.cos)) return good;
  for (const fa_tensor* each : {&call.q, &call.q_out, &call.cos, &call.sin}) {
    good &= in_units(*each, kAppendWidth);
  }
  return good;
}

AppendTensor moved(const fa_tensor& from, const fa_tensor& to) {
  return {from.data,      to.data,      from.stride[0], from.stride[1],
          from.stride[2], to.stride[0], to.stride[1],   to.stride[2]};
}

void set_tensors(AppendParams& p, const fa_append_call& call) {
  p.tensors[0] = moved(call.k, call.k_cache);
  p.tensors[1] = moved(call.v, call.v_cache);
  if (given(call.cos)) p.tensors[2] = moved(call.q, call.q_out);
  p.cos = data<void>(call.cos), p.sin = data<void>(call.sin);
  p.cache_seqlens = data<std::int32_t>(call.cache_seqlens);
  p.block_table = data<std::int32_t>(call.block_table);
  p.cache_batch_idx = data<std::int32_t>(call.cache_batch_idx);
  p.cos_row = call.cos.stride[0], p.sin_row = call.sin.stride[0];
  p.table_batch = call.block_table.stride[0];
}

void set_sizes(AppendParams& p, const Sizes& s) {
  p.rows_new = static_cast<std::int32_t>(s.rows_new);
  p.rows_q = static_cast<std::int32_t>(s.rows_q);
  p.nheads = static_cast<std::int32_t>(s.nheads);
  p.nheads_k = static_cast<std::int32_t>(s.nheads_k);
  p.head_dim = static_cast<std::int32_t>(s.head_dim);
  p.rotary_half = static_cast<std::int32_t>(s.rotary_half);
  p.rotary_rows = static_cast<std::int32_t>(s.rotary_rows);
  p.capacity = static_cast<std::int32_t>(s.capacity);
  p.batch_cache = static_cast<std::int32_t>(s.places);
  p.page = static_cast<std::int32_t>(s.page);
}

std::int32_t blocks(const AppendParams& p, bool rotates) {
  const std::int64_t together = kAppendThreads / append_units(p.head_dim, p.vectors ? kAppendWidth : 1);
  const std::int64_t rows =
      std::max(std::int64_t{p.rows_new} * p.nheads_k, rotates ? std::int64_t{p.rows_q} * p.nheads : 0);
  return row_blocks(rows, together);
}

}  // namespace

AppendArguments append_arguments(const fa_append_call& call) {
  require_well_formed(call, kFunction);
  require_dims_and_types(call);
  const Sizes sizes = sizes_of(call);
  require_shapes(call, sizes);
  require_limits(call, sizes);
  AppendArguments arguments{{}, sizes.batch, given(call.cos) ? 3 : 2, coded(call)};
  if (arguments.coded) set_codes(arguments.params, call.k_cache, call.k_descale, call.v_descale);
  AppendParams& params = arguments.params.append;
  set_tensors(params, call);
  set_sizes(params, sizes);
  params.interleaved = call.interleaved != 0;
  params.advances = call.advances != 0;
  params.vectors = vectors(call, sizes);
  params.blocks = blocks(params, given(call.cos));
  return arguments;
}

}  // namespace fa
