#include "host/calls/bwd.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "device/call/every_tile.hpp"
#include "device/call/sequence.hpp"
#include "host/arguments/bwd_arguments.hpp"
#include "host/arguments/problems.hpp"
#include "host/calls/mask_ranges.hpp"
#include "host/launch/device.hpp"
#include "host/launch/launch.hpp"
#include "host/launch/replaced.hpp"
#include "host/plan/fwd_plan.hpp"
#include "host/plan/order.hpp"
#include "host/registry/remembered.hpp"
#include "host/types/error.hpp"

namespace fa {

namespace {

struct Launch {
  Selection selection;
  Grid grid;
  bool reads_mask = false;
  std::int64_t bytes_of_head = 0;  // read by all workgroups of a head. 0: all in the hardware's order
  bool of_queries = false;  // whose last blocks see the most keys if the window's right side is limited
};

// Queries and their gradients, for all heads of q that share a head of k. Fused kernels also add to dq_sums.
std::int64_t bytes_by_keys(const BwdArguments& call, BwdPath path) {
  const BwdParams& p = call.params;
  const std::int64_t sums = path == BwdPath::fused ? 4 * call.head_dim : 0;
  return (2 * (call.head_dim + p.head_dim) + sums) * p.seqlen_q * p.nheads / p.nheads_k;
}

// Keys and values for one head of q.
std::int64_t bytes_by_queries(const BwdArguments& call) {
  const BwdParams& p = call.params;
  return 2 * (call.head_dim + p.head_dim) * p.seqlen_k * p.nheads_k / p.nheads;
}

std::string without_features_words(const std::string& gfx, int head_dim) {
  return "the fused kernels of " + gfx + " have no ALiBi, softcap and dropout at head_dim " +
         std::to_string(head_dim);
}

// Why calls that name no path take the fused kernels. For each query and key of a block, a workgroup forms
// five products of 2 * head_dim FLOP. For all keys of the block it adds 4 * head_dim bytes to a query's dq.
std::string fused_words(const std::string& gfx, const DkDvTile& tile) {
  const std::string flop = std::to_string(5 * 2 * tile.block_n / 4);
  return "the default of " + gfx +
         ": five products instead of seven, and dq added up by atomics, a byte for " + flop +
         " FLOP, in no fixed order (deterministic=True: the same bits every time). " +
         "Modelled to be faster while additions stay in an L2, and not measured: compare with " +
         "FLASH_ATTN_ROCM_BACKWARD=separate";
}

// Nothing for "": no wish.
std::optional<BwdPath> wanted_path(std::string_view wanted) {
  const std::string_view separate = name(BwdPath::separate), fused = name(BwdPath::fused);
  if (wanted.empty()) return std::nullopt;
  if (wanted == separate) return BwdPath::separate;
  if (wanted == fused) return BwdPath::fused;
  throw Error(FA_INVALID, "the backward's path: expected " + std::string(separate) + ", " +
                              std::string(fused) + " or nothing, got " + std::string(wanted));
}

// The caller's plan, or the path that dq_sums belong to.
BwdPath chosen(const fa_bwd_call& call) {
  const BwdPath of_sums = given(call.dq_sums) ? BwdPath::fused : BwdPath::separate;
  const BwdPath path = wanted_path(call.path == nullptr ? "" : call.path).value_or(of_sums);
  if (path == of_sums) return path;
  throw Error(FA_INVALID,
              "flash_attn_rocm::bwd cannot use its arguments:\n  - dq_sums: expected exactly with the path " +
                  std::string(name(BwdPath::fused)) + ", got the path " + std::string(name(path)));
}

// Whether v has another head dim than q and k.
bool is_uneven(const BwdArguments& call) { return call.params.head_dim != call.head_dim; }

// Only separate kernels have variants.
Launches ops_of(BwdPath path, bool uneven, bool masked) {
  if (path == BwdPath::separate && uneven) return launches_of(Variant::uneven);
  if (path == BwdPath::separate && masked) return launches_of(Variant::masked);
  return launches_of(path);
}

Op fused_op() { return launches_of(BwdPath::fused)[1]; }

// Every launch of a call, except empty ones. Without queries, dk and dv are written with 0.
std::vector<Launch> launches(BwdPath path, const BwdArguments& call, const BwdKernels& kernels, int device) {
  const BwdParams& p = call.params;
  const auto [arch, dtype] = tabled(kernels.dq.gfx, kernels.dq.instance->dtype);
  const Launches ops = ops_of(path, is_uneven(call), call.masked);
  const int head_dim = static_cast<int>(call.head_dim);
  const DkDvTile of_keys = dkdv_tile(ops[1], arch, dtype, head_dim);
  const FwdTile of_dq = path == BwdPath::fused ? FwdTile{kConvertRows, kConvertThreads}
                                               : dq_tile(ops[2], arch, dtype, head_dim);
  const CallSizes sizes = sizes_of(p.seqlen_q, p.seqlen_k, p);
  const Workgroups keys =
      in_use(device, *kernels.by_keys.instance, sizes, {of_keys.block_n, of_keys.threads});
  const Workgroups dq = in_use(device, *kernels.dq.instance, sizes, {of_dq.block_m, of_dq.threads});
  const std::vector<Launch> all = {
      {kernels.delta, {blocks_of_rows(p.seqlen_q, kDeltaRows), p.nheads, call.batch, kDeltaThreads}},
      {kernels.by_keys,
       {blocks_of_rows(p.seqlen_k, keys.rows), p.nheads_k, call.batch, keys.threads, keys.kernel},
       call.masked,
       bytes_by_keys(call, path)},
      {kernels.dq,
       {blocks_of_rows(p.seqlen_q, dq.rows), p.nheads, call.batch, dq.threads, dq.kernel},
       call.masked,
       path == BwdPath::fused ? 0 : bytes_by_queries(call),
       true}};
  std::vector<Launch> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [](const Launch& each) { return each.grid.x > 0; });
  return some;
}

// Of a launchable grid, so its product fits in 64 bits.
LaunchOrder order(const Launch& launch, const BwdParams& p, int device) {
  if (launch.bytes_of_head == 0) return {};
  const Gfx arch = tabled(launch.selection.gfx, launch.selection.instance->dtype).arch;
  return order_of({arch, device_compute_units(device), launch.grid.x, launch.grid.y, launch.grid.z,
                   launch.bytes_of_head, hides_keys(p), is_packed(p),
                   launch.of_queries && p.window_right >= 0});
}

// Whether to look for the keys shown by a mask. Shorter calls lose more time in the launch than they save.
bool skips_hidden(const BwdArguments& call) {
  constexpr std::int32_t kLeastRows = 1024;
  const MaskedBwdParams& m = call.mask;
  return call.masked && call.params.seqlen_q >= kLeastRows && call.params.seqlen_k > 0 &&
         has_ranges(m.mask_kind, m.mask_head, m.mask_row);
}

// In dq, until its kernel writes it.
void launch_ranges(const BwdArguments& call, const Selection& reader, const Place& place) {
  const BwdParams& p = call.params;
  MaskRangesParams ranges = ranges_of(call.mask);
  ranges.out = p.dq.data, ranges.o_batch = p.dq.batch, ranges.o_row = p.dq.row, ranges.o_head = p.dq.head;
  ranges.seqlen_q = p.seqlen_q, ranges.seqlen_k = p.seqlen_k, ranges.nheads = p.nheads;
  ranges.batch = static_cast<std::int32_t>(call.batch);
  launch_mask_ranges(ranges, reader, place);
}

void require_features(BwdPath path, const BwdParams& p, const Selection& fused) {
  if (path != BwdPath::fused || !featured(p)) return;
  const auto [arch, dtype] = tabled(fused.gfx, fused.instance->dtype);
  if (!dkdv_config(fused_op(), arch, dtype, p.head_dim).features) {
    throw Error(FA_UNSUPPORTED, without_features_words(fused.gfx, p.head_dim) + ": call without dq_sums");
  }
}

// The kernels of a call whose v has another head dim.
BwdKernels uneven_kernels(BwdPath path, const BwdArguments& call, const std::string& arch,
                          const std::string& dtype) {
  const BwdParams& p = call.params;
  const std::string dims = "v with head_dim " + std::to_string(p.head_dim) +
                           " beside q and k with head_dim " + std::to_string(call.head_dim);
  if (path == BwdPath::fused || featured(p) || call.masked) {
    throw Error(FA_UNSUPPORTED, "no kernel computes gradients of " + dims +
                                    " with ALiBi, softcap, dropout, attn_mask or dq_sums: pad v");
  }
  const auto [delta_op, by_keys_op, dq_op] = launches_of(Variant::uneven);
  const Selection dq = select(name(dq_op), arch, dtype, bounded(call.head_dim));
  if (dq.instance == nullptr || p.head_dim != value_dim_of(dq_op)) {
    throw Error(FA_UNSUPPORTED, "no kernel computes gradients of " + dims + " on " + shown(arch) + ": pad v");
  }
  const int head_dim = static_cast<int>(call.head_dim);
  return {served(name(delta_op), arch, dtype, p.head_dim), served(name(by_keys_op), arch, dtype, head_dim),
          dq};
}

BwdKernels kernels_of(BwdPath path, const BwdArguments& call, const std::string& arch,
                      const std::string& dtype) {
  if (is_uneven(call)) return uneven_kernels(path, call, arch, dtype);
  return bwd_kernels(path, arch, dtype, bounded(call.head_dim), call.masked);
}

BwdKernels find_kernels(BwdPath path, const std::string& arch, const std::string& dtype, int head_dim,
                        bool masked) {
  const auto find = [&](Op op) { return served(name(op), arch, dtype, head_dim); };
  const Launches ops = ops_of(path, false, masked);
  // The kernel for one head dim first, for its error message.
  if (path == BwdPath::fused) {
    const Selection fused = find(ops[1]);
    return {find(ops[0]), fused, find(ops[2])};
  }
  const Selection dq = find(ops[2]);
  return {find(ops[0]), find(ops[1]), dq};
}

}  // namespace

BwdKernels bwd_kernels(BwdPath path, const std::string& arch, const std::string& dtype, int head_dim,
                       bool masked) {
  using Key = std::tuple<BwdPath, bool, int, std::string, std::string>;
  static auto& all = *new Remembered<Key, BwdKernels>;
  return all.of({path, masked, head_dim, dtype, arch},
                [&] { return find_kernels(path, arch, dtype, head_dim, masked); });
}

BwdPlan bwd_plan(const BwdPlanRequest& r) {
  const std::optional<BwdPath> wanted = wanted_path(r.wanted);
  bwd_kernels(BwdPath::separate, r.arch, r.dtype, r.head_dim, r.masked);
  if (r.masked) return {BwdPath::separate, 1, "a mask: only separate kernels read one"};
  if (r.deterministic) return {BwdPath::separate, 1, "the same bits every time are wanted (deterministic)"};
  if (wanted == BwdPath::separate) return {BwdPath::separate, 1, r.wanted + " is wanted"};
  const Selection fused = select(name(fused_op()), r.arch, r.dtype, r.head_dim);
  if (fused.instance == nullptr) return {BwdPath::separate, 1, fused.reason};
  const auto [gfx, dtype] = tabled(fused.gfx, fused.instance->dtype);
  const DkDvConfig config = dkdv_config(fused_op(), gfx, dtype, r.head_dim);
  if (r.featured && !config.features) {
    return {BwdPath::separate, 1, without_features_words(fused.gfx, r.head_dim)};
  }
  if (wanted == BwdPath::fused) return {BwdPath::fused, 1, r.wanted + " is wanted"};
  if (!config.preferred) return {BwdPath::separate, 1, "the default of " + fused.gfx};
  return {BwdPath::fused, 1, fused_words(fused.gfx, tile_of(config, gfx))};
}

void bwd(const fa_bwd_call& call) {
  const BwdArguments arguments = bwd_arguments(call);
  const BwdPath path = chosen(call);
  if (arguments.batch == 0 || arguments.params.nheads == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Place place{device, device_arch(device), static_cast<hipStream_t>(call.stream)};
  const BwdKernels kernels = kernels_of(path, arguments, place.arch, dtype_name(call.q.dtype));
  require_features(path, arguments.params, kernels.by_keys);
  const std::vector<Launch> all = launches(path, arguments, kernels, device);
  for (const Launch& each : all) require_launchable(each.selection, each.grid);
  MaskedBwdParams masked = arguments.mask;
  masked.has_ranges = skips_hidden(arguments) ? 1 : 0;
  if (masked.has_ranges != 0) launch_ranges(arguments, kernels.dq, place);
  for (const Launch& each : all) {
    Grid grid = each.grid;
    masked.bwd = arguments.params;
    masked.bwd.order = order(each, masked.bwd, device);
    in_order(masked.bwd.order, grid);
    if (each.reads_mask) {
      launch(each.selection, grid, masked, place);
    } else {
      launch(each.selection, grid, masked.bwd, place);
    }
  }
}

}  // namespace fa
