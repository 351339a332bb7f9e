#include <algorithm>
#include <cstdint>
#include <string>

#include "device/call/every_tile.hpp"
#include "device/call/params.hpp"
#include "device/call/sequence.hpp"
#include "host/arguments/common_arguments.hpp"
#include "host/calls/fwd.hpp"
#include "host/launch/device.hpp"
#include "host/launch/launch.hpp"
#include "host/plan/fwd_plan.hpp"
#include "host/plan/order.hpp"
#include "host/types/error.hpp"

namespace fa {

namespace {

constexpr const char* kFunction = "fwd_fp8";
// A valid call, ready for a launch.
struct Fp8Arguments {
  Fp8Params params;
  std::int64_t batch, head_dim;
};

constexpr std::int64_t kWord = 2;  // codes. Strides of the kernel count pairs

// Sizes derived from the shapes of a call.
struct Sizes {
  bool ragged;
  std::int64_t batch, seqlen_q, rows_q, nheads, head_dim;
  std::int64_t seqlen_k, rows_k, nheads_k;
};

Sizes sizes_of(const fa_fwd_fp8_call& call) {
  Sizes s{};
  s.ragged = given(call.cu_seqlens_q);
  const int rows = s.ragged ? 0 : 1;
  s.batch = s.ragged ? call.cu_seqlens_q.size[0] - 1 : call.q.size[0];
  s.rows_q = call.q.size[rows], s.nheads = call.q.size[rows + 1], s.head_dim = call.q.size[rows + 2];
  s.rows_k = call.k.size[rows], s.nheads_k = call.k.size[rows + 1];
  s.seqlen_q = s.ragged ? call.max_seqlen_q : s.rows_q;
  s.seqlen_k = s.batch > 0 ? s.rows_k : 0;
  return s;
}

void require_dims_and_types(const fa_fwd_fp8_call& call) {
  Problems problems;
  const int dims = given(call.cu_seqlens_q) ? 3 : 4;
  for (const Described& each : tensors_of(call)) require_type(problems, each, {"out", call.out});
  problems.add_unless(call.q.dtype == FA_E4M3FN || call.q.dtype == FA_E4M3FNUZ, [&] {
    return std::string("q: expected dtype float8_e4m3fn or float8_e4m3fnuz, got ") + dtype_name(call.q.dtype);
  });
  for (const Named& each : {Named{"k", call.k}, Named{"v", call.v}}) {
    problems.expect_dtype(each, call.q.dtype);
  }
  for (const Named& each :
       {Named{"q", call.q}, Named{"k", call.k}, Named{"v", call.v}, Named{"out", call.out}}) {
    problems.expect_dims(each, dims);
  }
  problems.expect_dims({"lse", call.lse}, dims - 1);
  const auto optional = [&](const Named& named, int wanted) {
    if (given(named.tensor)) problems.expect_dims(named, wanted);
  };
  optional({"cu_seqlens_q", call.cu_seqlens_q}, 1);
  optional({"cu_seqlens_k", call.cu_seqlens_k}, 1);
  optional({"sink", call.sink}, 1);
  optional({"q_descale", call.q_descale}, 2);
  optional({"k_descale", call.k_descale}, 2);
  optional({"v_descale", call.v_descale}, 2);
  problems.add_unless(given(call.cu_seqlens_q) == given(call.cu_seqlens_k),
                      [] { return std::string("cu_seqlens_q, cu_seqlens_k: expected both or none"); });
  problems.raise_if_any(kFunction);
}

void require_shapes(const fa_fwd_fp8_call& call, const Sizes& s) {
  Problems problems;
  const Shape lse = s.ragged ? Shape{s.nheads, s.rows_q} : Shape{s.batch, s.nheads, s.rows_q};
  Shape k = shape(call.k);
  k.back() = s.head_dim;
  if (!s.ragged) k.front() = s.batch;
  problems.expect_shape({"k", call.k}, k);
  problems.expect_shape({"v", call.v}, k);
  problems.expect_shape({"out", call.out}, shape(call.q));
  problems.expect_shape({"lse", call.lse}, lse);
  problems.add_unless(s.batch >= 0,
                      [] { return std::string("cu_seqlens_q: expected shape (batch + 1), got shape (0)"); });
  const auto optional = [&](const Named& named, const Shape& sizes) {
    if (given(named.tensor)) problems.expect_shape(named, sizes);
  };
  optional({"cu_seqlens_k", call.cu_seqlens_k}, {s.batch + 1});
  optional({"sink", call.sink}, {s.nheads});
  for (const Named& each : {Named{"q_descale", call.q_descale}, Named{"k_descale", call.k_descale},
                            Named{"v_descale", call.v_descale}}) {
    optional(each, {s.batch, s.nheads_k});
    if (given(each.tensor)) problems.expect_address(each, sizeof(float));
  }
  require_grouped_heads(problems, s.nheads, s.nheads_k);
  problems.raise_if_any(kFunction);
}

void require_limits(const fa_fwd_fp8_call& call, const Sizes& s) {
  Problems problems;
  problems.expect_at_most("batch", s.batch, kMaxGridYZ);
  problems.expect_at_most("nheads", s.nheads, kMaxGridYZ);
  problems.expect_at_most("rows of q", s.rows_q, kMaxLength);
  problems.expect_at_most("rows of k", s.rows_k, kMaxLength);
  problems.add_unless(!s.ragged || (call.max_seqlen_q >= 0 && call.max_seqlen_k >= 0),
                      [] { return std::string("max_seqlen_q, max_seqlen_k: expected at least 0"); });
  require_scores(problems, call.softmax_scale, 0);
  for (const Named& each : {Named{"q", call.q}, Named{"k", call.k}, Named{"v", call.v}}) {
    problems.add_unless(aligned(each.tensor), [&] {
      return std::string(each.name) +
             ": expected a contiguous last dimension, an address and other strides that are multiples of 16 "
             "bytes, and rows less than 2^24 bytes apart";
    });
  }
  require_aligned(problems, {"out", call.out});
  problems.expect_own_memory({"out", call.out});
  require_contiguous(problems, call);
  problems.raise_if_any(kFunction);
}

void set_tensors(FwdParams& p, const fa_fwd_fp8_call& call) {
  p.q = call.q.data, p.k = call.k.data, p.v = call.v.data, p.out = call.out.data;
  p.lse = static_cast<float*>(call.lse.data);
  p.cu_seqlens_q = data<std::int32_t>(call.cu_seqlens_q);
  p.cu_seqlens_k = data<std::int32_t>(call.cu_seqlens_k);
  p.sink = data<float>(call.sink);
  const Strides q = strides(call.q), k = strides(call.k), v = strides(call.v), o = strides(call.out);
  p.q_batch = q.batch / kWord, p.q_row = q.row / kWord, p.q_head = q.head / kWord;
  p.k_batch = k.batch / kWord, p.k_row = k.row / kWord, p.k_head = k.head / kWord;
  p.v_batch = v.batch / kWord, p.v_row = v.row / kWord, p.v_head = v.head / kWord;
  p.o_batch = o.batch, p.o_row = o.row, p.o_head = o.head;
}

void set_sizes(FwdParams& p, const Sizes& s) {
  p.seqlen_q = static_cast<std::int32_t>(std::min(s.seqlen_q, s.rows_q));
  p.seqlen_k = static_cast<std::int32_t>(s.seqlen_k);
  p.rows_q = static_cast<std::int32_t>(s.rows_q);
  p.rows_k = static_cast<std::int32_t>(s.rows_k);
  p.batch_k = static_cast<std::int32_t>(s.batch);
  p.nheads = static_cast<std::int32_t>(s.nheads);
  p.nheads_k = static_cast<std::int32_t>(s.nheads_k);
  p.lse_head = s.rows_q;
  p.lse_batch = s.ragged ? 0 : s.nheads * s.rows_q;
  p.splits = 1;
}

void set_descales(Fp8Params& p, const fa_fwd_fp8_call& call) {
  const auto set = [](const fa_tensor& t, const float*& base, std::int64_t& batch, std::int64_t& head) {
    base = data<float>(t), batch = t.stride[0], head = t.stride[1];
  };
  set(call.q_descale, p.q_descale, p.q_descale_batch, p.q_descale_head);
  set(call.k_descale, p.k_descale, p.k_descale_batch, p.k_descale_head);
  set(call.v_descale, p.v_descale, p.v_descale_batch, p.v_descale_head);
  p.format = static_cast<std::int32_t>(code_format(call.q.dtype));
}

Fp8Arguments fp8_arguments(const fa_fwd_fp8_call& call) {
  require_well_formed(call, kFunction);
  require_dims_and_types(call);
  const Sizes s = sizes_of(call);
  require_shapes(call, s);
  require_limits(call, s);
  Fp8Arguments arguments{Fp8Params{}, s.batch, s.head_dim};
  FwdParams& p = arguments.params.fwd;
  set_tensors(p, call);
  set_sizes(p, s);
  set_descales(arguments.params, call);
  p.window_left = window(call.window_left), p.window_right = window(call.window_right);
  p.scale = call.softmax_scale, p.dropout_scale = 1;
  p.rare = rare_in(p);
  return arguments;
}

}  // namespace

void fwd_fp8(const fa_fwd_fp8_call& call) {
  Fp8Arguments arguments = fp8_arguments(call);
  FwdParams& p = arguments.params.fwd;
  if (arguments.batch == 0 || p.seqlen_q == 0 || p.nheads == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Place place{device, device_arch(device), static_cast<hipStream_t>(call.stream)};
  const int head_dim = bounded(arguments.head_dim);
  const Op op = op_of(Path::fp8);
  const Selection selection = served(name(op), place.arch, dtype_name(call.out.dtype), head_dim);
  const Tabled kind = tabled(selection.gfx, selection.instance->dtype);
  if (call.q.dtype == FA_E4M3FNUZ && traits(kind.arch).fp8 == Fp8::ocp) {
    throw Error(FA_UNSUPPORTED, "no kernel for " + place.arch +
                                    " has products of float8_e4m3fnuz: expected " + "float8_e4m3fn");
  }
  const FwdTile tile = forward_tile(op, kind.arch, kind.dtype, head_dim);
  Grid grid{blocks_of_rows(p.seqlen_q, tile.block_m), p.nheads, arguments.batch, tile.threads};
  require_launchable(selection, grid);  // so its product fits in 64 bits
  const std::int64_t bytes_of_head = std::int64_t{2} * head_dim * p.seqlen_k * p.nheads_k / p.nheads;
  p.order = order_of({kind.arch, device_compute_units(place.device), grid.x, grid.y, grid.z, bytes_of_head,
                      hides_keys(p), is_packed(p), p.window_right >= 0});
  in_order(p.order, grid);
  launch(selection, grid, arguments.params, place);
}

}  // namespace fa
