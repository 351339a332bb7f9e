#include "host/calls/mla.hpp"

#include <string>

#include "device/call/every_tile.hpp"
#include "host/arguments/mla_arguments.hpp"
#include "host/arguments/problems.hpp"
#include "host/calls/decode.hpp"
#include "host/launch/device.hpp"
#include "host/types/error.hpp"

namespace fa {

namespace {

// The parts are the caller's plan.
void require_parts(const FwdParams& p, Op op, const Tabled& kind, int head_dim) {
  const std::int64_t most = most_latent_parts(op, kind.arch, kind.dtype, head_dim, p.seqlen_k);
  if (p.splits <= most) return;
  throw Error(FA_INVALID, "flash_attn_rocm::mla cannot use its arguments:\n  - partial_out, partial_lse: " +
                              too_many_parts(most, p.splits));
}

}  // namespace

void mla(const fa_mla_call& call) {
  const FwdArguments arguments = mla_arguments(call);
  if (arguments.batch == 0 || arguments.params.seqlen_q == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Place place{device, device_arch(device), static_cast<hipStream_t>(call.stream)};
  const int head_dim = bounded(arguments.head_dim);
  const Op op = latent_op(arguments.coded, arguments.scaled);
  const Selection selection = served(name(op), place.arch, dtype_name(call.q.dtype), head_dim);
  const Tabled kind = tabled(selection.gfx, selection.instance->dtype);
  require_parts(arguments.params, op, kind, head_dim);
  const FwdTile tile = forward_tile(op, kind.arch, kind.dtype, head_dim);
  const Grid grid = packed_grid(arguments, {tile.block_m, tile.threads});
  launch_parts(arguments, selection, grid, arguments.params, mla_value_dim(head_dim), place);
}

Plan served_latent_plan(const fa_plan_mla_call& call) {
  const bool coded = call.coded != 0, scaled = call.scaled != 0;
  const Op op = latent_op(coded, scaled);
  const Selection selection = served(name(op), call.arch, call.dtype, bounded(call.head_dim));
  const Tabled kind = tabled(selection.gfx, selection.instance->dtype);
  return latent_plan({kind.arch, kind.dtype, call.head_dim, call.batch, call.seqlen_q, call.seqlen_k,
                      call.nheads, call.compute_units, call.num_splits, coded, scaled});
}

}  // namespace fa
