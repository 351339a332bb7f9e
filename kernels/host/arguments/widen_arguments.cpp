#include "host/arguments/widen_arguments.hpp"

#include <string>

#include "host/arguments/common_arguments.hpp"

namespace fa {

namespace {

constexpr const char* kFunction = "widen";

// Sizes derived from the shapes of a call.
struct Sizes {
  bool paged;
  std::int64_t batch, seqlen_k, nheads_k, head_dim;
  std::int64_t places, page, capacity;
};

Sizes sizes_of(const fa_widen_call& call) {
  Sizes s{};
  s.paged = given(call.block_table);
  s.batch = call.k_out.size[0], s.seqlen_k = call.k_out.size[1];
  s.nheads_k = call.k_out.size[2], s.head_dim = call.k_out.size[3];
  s.places = call.k_cache.size[0];
  s.page = s.paged ? call.k_cache.size[1] : 0;
  s.capacity = s.paged ? product(call.block_table.size[1], s.page, kMaxLength) : call.k_cache.size[1];
  if (s.places == 0) s.capacity = 0;
  return s;
}

void require_dims_and_types(const fa_widen_call& call) {
  Problems problems;
  for (const Described& each : tensors_of(call)) require_type(problems, each, {"k_out", call.k_out});
  problems.add_unless(call.v_cache.dtype == call.k_cache.dtype, [&] {
    return std::string("v_cache: expected dtype ") + dtype_name(call.k_cache.dtype) + " like k_cache, got " +
           dtype_name(call.v_cache.dtype);
  });
  for (const Named& each : {Named{"k_cache", call.k_cache}, Named{"v_cache", call.v_cache},
                            Named{"k_out", call.k_out}, Named{"v_out", call.v_out}}) {
    problems.expect_dims(each, 4);
  }
  const auto optional = [&](const Named& named, int dims) {
    if (given(named.tensor)) problems.expect_dims(named, dims);
  };
  require_descale_dims(problems, call.k_descale, call.v_descale);
  optional({"seqused_k", call.seqused_k}, 1);
  optional({"block_table", call.block_table}, 2);
  optional({"cache_batch_idx", call.cache_batch_idx}, 1);
  problems.add_unless(!given(call.cache_batch_idx) || !given(call.block_table),
                      [] { return std::string("cache_batch_idx: expected none together with block_table"); });
  problems.raise_if_any(kFunction);
}

void require_shapes(const fa_widen_call& call, const Sizes& s) {
  Problems problems;
  const bool any_place = s.paged || given(call.cache_batch_idx);
  const Shape cache{any_place ? s.places : s.batch, call.k_cache.size[1], s.nheads_k, s.head_dim};
  problems.expect_shape({"k_cache", call.k_cache}, cache);
  problems.expect_shape({"v_cache", call.v_cache}, cache);
  problems.expect_shape({"v_out", call.v_out}, shape(call.k_out));
  require_descale_shapes(problems, call.k_descale, call.v_descale, {s.batch, s.nheads_k}, call.k_cache);
  const auto optional = [&](const Named& named, const Shape& sizes) {
    if (given(named.tensor)) problems.expect_shape(named, sizes);
  };
  optional({"seqused_k", call.seqused_k}, {s.batch});
  optional({"block_table", call.block_table}, {s.batch, call.block_table.size[1]});
  optional({"cache_batch_idx", call.cache_batch_idx}, {s.batch});
  problems.add_unless(s.head_dim >= 1 && s.head_dim <= kMaxWideHeadDim, [&] {
    return "k_out: expected a headdim from 1 to " + std::to_string(kMaxWideHeadDim) + ", got " +
           std::to_string(s.head_dim);
  });
  if (s.paged) require_pages(problems, "k_cache", s.page);
  problems.expect_at_most("keys that a sequence's cache can have", s.capacity, kMaxLength);
  problems.expect_at_most("rows of k_out, which are keys of the cache", s.seqlen_k, s.capacity);
  problems.raise_if_any(kFunction);
}

void require_limits(const fa_widen_call& call, const Sizes& s) {
  Problems problems;
  problems.expect_at_most("batch", s.batch, kMaxGridYZ);
  problems.expect_at_most("rows of k_out times its heads", product(s.seqlen_k, s.nheads_k, kMaxLength),
                          kMaxLength);
  problems.expect_at_most("rows or blocks of the cache", s.places, INT32_MAX);
  for (const Described& each : tensors_of(call)) {
    if (given(each.named.tensor) && each.holds != Holds::fp32) {
      problems.expect_elements(each.named, element_bytes(each.named.tensor.dtype));
    }
  }
  problems.expect_own_memory({"k_out", call.k_out});
  problems.expect_own_memory({"v_out", call.v_out});
  problems.raise_if_any(kFunction);
}

bool vectors(const fa_widen_call& call, const Sizes& s) {
  bool good = s.head_dim % kWidenWidth == 0;
  for (const fa_tensor* each : {&call.k_cache, &call.v_cache, &call.k_out, &call.v_out}) {
    good &= in_units(*each, kWidenWidth);
  }
  return good;
}

WidenTensor copied(const fa_tensor& from, const fa_tensor& to, const fa_tensor& descale) {
  WidenTensor t{};
  t.from = from.data, t.to = to.data, t.descale = data<float>(descale);
  t.from_batch = from.stride[0], t.from_row = from.stride[1], t.from_head = from.stride[2];
  t.to_batch = to.stride[0], t.to_row = to.stride[1], t.to_head = to.stride[2];
  if (!given(descale)) return t;
  t.descale_batch = descale.stride[0], t.descale_head = descale.stride[descale.dims - 1];
  if (descale.dims == 3) t.descale_row = descale.stride[1];
  return t;
}

std::int32_t blocks(const WidenParams& p) {
  const std::int64_t together = kWidenThreads / widen_units(p.head_dim, p.vectors);
  return row_blocks(std::int64_t{p.seqlen_k} * p.nheads_k, together);
}

}  // namespace

WidenArguments widen_arguments(const fa_widen_call& call) {
  require_well_formed(call, kFunction);
  require_dims_and_types(call);
  const Sizes s = sizes_of(call);
  require_shapes(call, s);
  require_limits(call, s);
  WidenArguments arguments{WidenParams{}, s.batch};
  WidenParams& p = arguments.params;
  p.tensors[0] = copied(call.k_cache, call.k_out, call.k_descale);
  p.tensors[1] = copied(call.v_cache, call.v_out, call.v_descale);
  p.seqused_k = data<std::int32_t>(call.seqused_k);
  p.block_table = data<std::int32_t>(call.block_table);
  p.cache_batch_idx = data<std::int32_t>(call.cache_batch_idx);
  p.table_batch = call.block_table.stride[0];
  p.seqlen_k = static_cast<std::int32_t>(s.seqlen_k);
  p.nheads_k = static_cast<std::int32_t>(s.nheads_k);
  p.head_dim = static_cast<std::int32_t>(s.head_dim);
  p.batch_cache = static_cast<std::int32_t>(s.places);
  p.page = static_cast<std::int32_t>(s.page);
  p.format = static_cast<std::int32_t>(code_format(call.k_cache.dtype));
  p.per_key = call.k_descale.dims == 3;
  p.vectors = vectors(call, s);
  p.blocks = blocks(p);
  return arguments;
}

}  // namespace fa
