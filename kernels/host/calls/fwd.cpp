#include "host/calls/fwd.hpp"

#include <cstdint>
#include <string>
#include <string_view>

#include "device/call/every_tile.hpp"
#include "device/call/sequence.hpp"
#include "host/arguments/fwd_arguments.hpp"
#include "host/arguments/problems.hpp"
#include "host/calls/decode.hpp"
#include "host/calls/mask_ranges.hpp"
#include "host/launch/device.hpp"
#include "host/launch/launch.hpp"
#include "host/launch/replaced.hpp"
#include "host/plan/fwd_plan.hpp"
#include "host/plan/order.hpp"
#include "host/types/error.hpp"

namespace fa {

namespace {

PlanRequest request_of(const fa_fwd_call& call, const FwdArguments& a, const Kernels& kernels) {
  const FwdParams& p = a.params;
  PlanRequest r{};
  r.arch = kernels.arch, r.dtype = kernels.dtype, r.head_dim = a.head_dim, r.kernels = kernels.there;
  r.batch = a.batch, r.max_seqlen_q = a.max_seqlen_q, r.max_seqlen_k = a.max_seqlen_k;
  r.nheads = p.nheads, r.nheads_k = p.nheads_k;
  r.num_splits = p.splits;  // allocated by the caller
  r.dropout = call.dropout_p > 0, r.aligned = a.aligned, r.masked = a.masked, r.coded = a.coded;
  r.plain = false;  // tall workgroups need the caller's plan
  r.causal = p.window_right >= 0;
  return r;
}

constexpr const char* kRefused = "flash_attn_rocm::fwd cannot use its arguments:\n  - ";

Path path_named(std::string_view wanted) {
  std::string names;
  for (const Path each : kPaths) {
    if (name(each) == wanted) return each;
    names += (names.empty() ? "" : ", ") + std::string(name(each));
  }
  throw Error(FA_INVALID, kRefused + ("path: expected one of " + names + ", got " + std::string(wanted)));
}

// v with another head dim has kernels of one path. The caller's plan decided whether to pad v instead.
void require_uneven(const FwdArguments& a, const std::string& path, const std::string& misfit) {
  if (misfit.empty() && (path.empty() || path == name(Path::uneven))) return;
  throw Error(FA_UNSUPPORTED,
              "no kernel takes v with head_dim " + std::to_string(a.v_head_dim) +
                  " in this call: those that take one other than that of q and k, " +
                  std::to_string(a.head_dim) +
                  ", have neither softcap nor ALiBi, dropout, pages, a mask, tall workgroups " +
                  "or parts, and want aligned rows: pad v");
}

// The caller's plan, if it can compute the call, or the library's.
Plan chosen(const fa_fwd_call& call, const FwdArguments& a, const PlanRequest& request) {
  const std::string wanted = call.path == nullptr ? "" : call.path;
  const std::int32_t parts = a.params.splits;
  const auto misfit_of = [&](Path path) { return misfit(path, request, featured(a.params)); };
  if (a.v_head_dim != a.head_dim) {
    require_uneven(a, wanted, misfit_of(Path::uneven));
    return {Path::uneven, parts, ""};
  }
  if (wanted.empty()) return plan(request);
  const Path path = path_named(wanted);
  const std::string why = path == Path::uneven ? "v has the head dim of q and k" : misfit_of(path);
  if (why.empty()) return {path, parts, "the caller's path"};
  throw Error(FA_INVALID, kRefused + ("path: " + wanted + " does not take this call: " + why));
}

// Features that a plan does not distinguish.
void require_no_features_if_plain(const Plan& plan, const FwdArguments& a) {
  if (!is_plain(op_of(plan.path)) || !featured(a.params)) return;
  throw Error(FA_UNSUPPORTED, "no kernel takes this call with head_dim " + std::to_string(a.head_dim) + ": " +
                                  refusal_of(op_of(plan.path)));
}

void require_planned_parts(const Plan& plan, int splits) {
  if (plan.splits == splits) return;
  const std::string wanted = plan.splits == 1 ? "none" : std::to_string(plan.splits) + " parts";
  throw Error(FA_INVALID,
              kRefused + ("partial_out, partial_lse: expected " + wanted + ", as plan says of this call (" +
                          plan.reason + "), got " + std::to_string(splits) + " parts"));
}

// Keys and values of a sequence for one head of q.
std::int64_t bytes_of_head(const FwdArguments& call) {
  const FwdParams& p = call.params;
  return 2 * (call.head_dim + call.v_head_dim) * p.seqlen_k * p.nheads_k / p.nheads;
}

void launch_whole(Path path, const FwdArguments& call, const Selection& selection, const Kernels& kernels,
                  const Place& place) {
  const int head_dim = selection.instance->head_dim;
  const FwdTile tile =
      forward_tile(op_of(path, {call.masked, call.coded}), kernels.arch, kernels.dtype, head_dim);
  const CallSizes sizes = sizes_of(call.max_seqlen_q, call.max_seqlen_k, call.params);
  const Workgroups used = in_use(place.device, *selection.instance, sizes, {tile.block_m, tile.threads});
  FwdParams p = call.params;
  const std::int64_t parts = p.splits > 1 ? p.splits : 1;
  Grid grid{blocks_of_rows(p.seqlen_q, used.rows) * parts, p.nheads, call.batch, used.threads, used.kernel};
  require_launchable(selection, grid);  // so its product fits in 64 bits
  p.order = order_of({kernels.arch, device_compute_units(place.device), grid.x, grid.y, grid.z,
                      bytes_of_head(call), parts == 1 && hides_keys(p), parts == 1 && is_packed(p),
                      path != Path::wide && p.window_right >= 0});
  in_order(p.order, grid);
  if (!call.masked) return launch_parts(call, selection, grid, p, head_dim, place);
  MaskedParams masked = call.mask;
  masked.fwd = p;
  if (has_ranges(masked.mask_kind, masked.mask_head, masked.mask_row)) {
    MaskRangesParams ranges = ranges_of(masked);
    ranges.out = p.out, ranges.o_batch = p.o_batch, ranges.o_row = p.o_row, ranges.o_head = p.o_head;
    ranges.seqlen_q = p.seqlen_q, ranges.seqlen_k = p.seqlen_k, ranges.nheads = p.nheads;
    ranges.batch = static_cast<std::int32_t>(call.batch);
    launch_mask_ranges(ranges, selection, place);
  }
  launch(selection, grid, masked, place);
}

// For any head dim up to kMaxHeadDim and any strides. Keys are not split.
void launch_reference(const FwdArguments& call, const Selection& selection, const Kernels& kernels,
                      const Place& place) {
  const FwdParams& p = call.params;
  const ReferenceParams params{p, static_cast<std::int32_t>(call.head_dim), reference_blocks(p.seqlen_q)};
  launch(selection, {params.blocks, p.nheads, call.batch, reference_tile(kernels.arch).threads}, params,
         place);
}

}  // namespace

void fwd(const fa_fwd_call& call) {
  const FwdArguments arguments = fwd_arguments(call);
  if (arguments.batch == 0 || arguments.params.seqlen_q == 0 || arguments.params.nheads == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Place place{device, device_arch(device), static_cast<hipStream_t>(call.stream)};
  const Kernels kernels =
      forward_kernels(place.arch, dtype_name(call.q.dtype), arguments.head_dim, arguments.v_head_dim);
  const Plan plan = chosen(call, arguments, request_of(call, arguments, kernels));
  const Selection selection =
      served_kernel(plan, kernels, arguments.head_dim, {arguments.masked, arguments.coded});
  require_no_features_if_plain(plan, arguments);
  require_planned_parts(plan, arguments.params.splits);
  switch (plan.path) {
    case Path::split: return decode(arguments, selection, kernels, place);
    case Path::reference: return launch_reference(arguments, selection, kernels, place);
    case Path::latent:
    case Path::fp8:
    case Path::int8: return;  // have their own calls
    default: return launch_whole(plan.path, arguments, selection, kernels, place);
  }
}

}  // namespace fa
