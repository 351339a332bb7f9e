// Attention as SageAttention: q and k become codes of int8, v of the GPU's fp8, in three launches. Without
// products of fp8 v stays as it is, and there are two.

#include <algorithm>
#include <cstdint>
#include <string>

#include "device/arch/traits.hpp"
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

constexpr const char* kFunction = "fwd_int8";
constexpr std::int64_t kWord = 2;  // codes. Strides of the forward count pairs

// Sizes derived from the shapes of a call.
struct Sizes {
  std::int64_t batch, seqlen_q, nheads, head_dim, seqlen_k, nheads_k;

  std::int64_t rows_q() const { return batch * nheads * seqlen_q; }
  std::int64_t rows_k() const { return batch * nheads_k * seqlen_k; }
  std::int64_t heads_k() const { return batch * nheads_k; }
  // Scales of a head of k, and the parts of its rows that quantise.
  std::int64_t scales() const { return (seqlen_k + 2 * kKeysOfScale - 1) / (2 * kKeysOfScale) * 2; }
  std::int64_t parts() const { return (seqlen_k + kQuantisedRows - 1) / kQuantisedRows; }
};

// The parts of the workspace, in floats. Codes come first: their rows are aligned.
struct Workspace {
  std::int64_t q, k, v, q_scales, k_scales, v_scales, largest, end;

  explicit Workspace(const Sizes& s) {
    const std::int64_t row = s.head_dim / static_cast<std::int64_t>(sizeof(float));
    q = 0, k = q + s.rows_q() * row, v = k + s.rows_k() * row;
    q_scales = v + s.rows_k() * row;
    k_scales = q_scales + s.rows_q();
    v_scales = k_scales + s.heads_k() * s.scales();
    largest = v_scales + s.heads_k();
    end = largest + s.heads_k() * s.parts();
  }
};

struct Int8Arguments {
  Fp8Params params;
  QuantiseParams codes;
  Sizes sizes;
};

Sizes sizes_of(const fa_fwd_int8_call& call) {
  return {call.q.size[0], call.q.size[1], call.q.size[2], call.q.size[3], call.k.size[1], call.k.size[2]};
}

void require_dims_and_types(const fa_fwd_int8_call& call) {
  Problems problems;
  require_types(problems, call);
  for (const Named& each :
       {Named{"q", call.q}, Named{"k", call.k}, Named{"v", call.v}, Named{"out", call.out}}) {
    problems.expect_dims(each, 4);
  }
  problems.expect_dims({"lse", call.lse}, 3);
  problems.expect_dims({"workspace", call.workspace}, 1);
  problems.raise_if_any(kFunction);
}

void require_shapes(const fa_fwd_int8_call& call, const Sizes& s) {
  Problems problems;
  const Shape k{s.batch, s.seqlen_k, s.nheads_k, s.head_dim};
  problems.expect_shape({"k", call.k}, k);
  problems.expect_shape({"v", call.v}, k);
  problems.expect_shape({"out", call.out}, shape(call.q));
  problems.expect_shape({"lse", call.lse}, {s.batch, s.nheads, s.seqlen_q});
  require_grouped_heads(problems, s.nheads, s.nheads_k);
  problems.expect_at_most("3 * batch", 3 * s.batch, kMaxGridYZ);
  problems.expect_at_most("nheads", s.nheads, kMaxGridYZ);
  problems.expect_at_most("rows of q", s.seqlen_q, kMaxLength);
  problems.expect_at_most("rows of k", s.seqlen_k, kMaxLength);
  problems.expect_at_most("nheads * headdim", product(s.nheads, s.head_dim, kMaxRowStride),
                          kMaxRowStride - 1);
  problems.raise_if_any(kFunction);
}

void require_memory(const fa_fwd_int8_call& call, const Sizes& s) {
  Problems problems;
  problems.expect_shape({"workspace", call.workspace}, {Workspace(s).end});
  problems.add_unless(reinterpret_cast<std::uintptr_t>(call.workspace.data) % 16 == 0, [] {
    return std::string("workspace: expected an address that is a multiple of 16 bytes");
  });
  require_scores(problems, call.softmax_scale, 0);
  for (const Named& each :
       {Named{"q", call.q}, Named{"k", call.k}, Named{"v", call.v}, Named{"out", call.out}}) {
    require_aligned(problems, each);
  }
  problems.expect_own_memory({"out", call.out});
  require_contiguous(problems, call);
  problems.raise_if_any(kFunction);
}

QuantiseTensor quantised(const fa_tensor& given, void* codes, float* scales) {
  const Strides s = strides(given);
  return {given.data,
          codes,
          scales,
          s.batch,
          s.row,
          s.head,
          static_cast<std::int32_t>(given.size[1]),
          static_cast<std::int32_t>(given.size[2])};
}

QuantiseParams codes_of(const fa_fwd_int8_call& call, const Sizes& s) {
  const Workspace at(s);
  float* const base = static_cast<float*>(call.workspace.data);
  QuantiseParams p{};
  p.tensors[0] = quantised(call.q, base + at.q, base + at.q_scales);
  p.tensors[1] = quantised(call.k, base + at.k, base + at.k_scales);
  p.tensors[2] = quantised(call.v, base + at.v, base + at.v_scales);
  p.largest = base + at.largest;
  p.head_dim = static_cast<std::int32_t>(s.head_dim);
  return p;
}

void set_codes(Fp8Params& p, const QuantiseParams& codes, const Sizes& s) {
  FwdParams& f = p.fwd;
  const std::int64_t row_q = s.nheads * s.head_dim / kWord, row_k = s.nheads_k * s.head_dim / kWord;
  f.q = codes.tensors[0].codes, f.k = codes.tensors[1].codes, f.v = codes.tensors[2].codes;
  f.q_batch = s.seqlen_q * row_q, f.q_row = row_q, f.q_head = s.head_dim / kWord;
  f.k_batch = s.seqlen_k * row_k, f.k_row = row_k, f.k_head = s.head_dim / kWord;
  f.v_batch = f.k_batch, f.v_row = f.k_row, f.v_head = f.k_head;
  p.q_descale = codes.tensors[0].scales, p.k_descale = codes.tensors[1].scales;
  p.v_descale = codes.tensors[2].scales;
  p.q_descale_batch = s.nheads * s.seqlen_q, p.q_descale_head = s.seqlen_q;
  p.k_descale_batch = s.nheads_k * s.scales(), p.k_descale_head = s.scales();
  p.v_descale_batch = s.nheads_k, p.v_descale_head = 1;
}

void set_results(FwdParams& p, const fa_fwd_int8_call& call, const Sizes& s) {
  const Strides o = strides(call.out);
  p.out = call.out.data, p.lse = static_cast<float*>(call.lse.data);
  p.o_batch = o.batch, p.o_row = o.row, p.o_head = o.head;
  p.lse_batch = s.nheads * s.seqlen_q, p.lse_head = s.seqlen_q;
  p.seqlen_q = p.rows_q = static_cast<std::int32_t>(s.seqlen_q);
  p.seqlen_k = p.rows_k = static_cast<std::int32_t>(s.seqlen_k);
  p.batch_k = static_cast<std::int32_t>(s.batch);
  p.nheads = static_cast<std::int32_t>(s.nheads), p.nheads_k = static_cast<std::int32_t>(s.nheads_k);
  p.splits = 1;
}

Int8Arguments int8_arguments(const fa_fwd_int8_call& call) {
  require_well_formed(call, kFunction);
  require_dims_and_types(call);
  const Sizes s = sizes_of(call);
  require_shapes(call, s);
  require_memory(call, s);
  Int8Arguments arguments{Fp8Params{}, codes_of(call, s), s};
  FwdParams& p = arguments.params.fwd;
  set_codes(arguments.params, arguments.codes, s);
  set_results(p, call, s);
  p.window_left = window(call.window_left), p.window_right = window(call.window_right);
  p.scale = call.softmax_scale, p.dropout_scale = 1;
  p.rare = rare_in(p);
  return arguments;
}

// The forward reads v as given.
void keep_values(Fp8Params& p, const fa_tensor& v) {
  const Strides s = strides(v);
  p.fwd.v = v.data, p.v_descale = nullptr;
  p.fwd.v_batch = s.batch, p.fwd.v_row = s.row, p.fwd.v_head = s.head;
}

// `tensors`: q and k, or also v.
void quantise(QuantiseParams p, const Sizes& s, std::int64_t tensors, const Selection& selection,
              const Place& place) {
  const auto blocks = [](std::int64_t rows) { return (rows + kQuantisedRows - 1) / kQuantisedRows; };
  const Grid largest{blocks(s.seqlen_k), s.nheads_k, s.batch, kQuantiseThreads};
  const Grid codes{blocks(std::max(s.seqlen_q, s.seqlen_k)), s.nheads, tensors * s.batch, kQuantiseThreads};
  if (tensors == 3 && s.seqlen_k > 0) launch(selection, largest, p, place);
  p.phase = 1;
  launch(selection, codes, p, place);
}

}  // namespace

void fwd_int8(const fa_fwd_int8_call& call) {
  Int8Arguments arguments = int8_arguments(call);
  const Sizes& s = arguments.sizes;
  FwdParams& p = arguments.params.fwd;
  if (s.batch == 0 || s.seqlen_q == 0 || s.nheads == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Place place{device, device_arch(device), static_cast<hipStream_t>(call.stream)};
  const int head_dim = bounded(s.head_dim);
  const Op op = op_of(Path::int8);
  const char* const dtype = dtype_name(call.q.dtype);
  const Selection selection = served(name(op), place.arch, dtype, head_dim);
  const Selection quantiser = served(name(Op::quantise), place.arch, dtype, head_dim);
  const Tabled kind = tabled(selection.gfx, selection.instance->dtype);
  const FwdTile tile = forward_tile(op, kind.arch, kind.dtype, head_dim);
  Grid grid{blocks_of_rows(p.seqlen_q, tile.block_m), p.nheads, s.batch, tile.threads};
  require_launchable(selection, grid);  // so its product fits in 64 bits
  const bool keeps = traits(kind.arch).fp8 == Fp8::none;
  if (keeps) keep_values(arguments.params, call.v);
  const std::int64_t row = keeps ? 3 * head_dim : 2 * head_dim;  // bytes of k and v
  const std::int64_t bytes_of_head = row * p.seqlen_k * p.nheads_k / p.nheads;
  p.order = order_of({kind.arch, device_compute_units(place.device), grid.x, grid.y, grid.z, bytes_of_head,
                      hides_keys(p), is_packed(p), p.window_right >= 0});
  in_order(p.order, grid);
  quantise(arguments.codes, s, keeps ? 2 : 3, quantiser, place);
  launch(selection, grid, arguments.params, place);
}

}  // namespace fa
