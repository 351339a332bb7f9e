#include "bwd.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "bwd_arguments.hpp"
#include "device.hpp"
#include "fa/kernel/backward_config.hpp"
#include "fa/kernel/sequence.hpp"
#include "launch.hpp"
#include "problems.hpp"

namespace fa {

namespace {

struct Launch {
  Selection selection;
  Grid grid;
};

// Every launch of a call; those without a row are left out. dk and dv are written, with 0, where there is no
// query.
std::vector<Launch> launches(const BwdArguments& call, const BwdKernels& kernels) {
  const BwdParams& p = call.params;
  const auto [arch, dtype] = tabled(kernels.dq.gfx, kernels.dq.instance->dtype);
  const DkDvTile dkdv = dkdv_tile(arch, dtype, p.head_dim);
  const FwdTile dq = dq_tile(arch, dtype, p.head_dim);
  const std::vector<Launch> all = {
      {kernels.delta, {blocks_of_rows(p.seqlen_q, kDeltaRows), p.nheads, call.batch, kDeltaThreads}},
      {kernels.dkdv, {blocks_of_rows(p.seqlen_k, dkdv.block_n), p.nheads_k, call.batch, dkdv.threads}},
      {kernels.dq, {blocks_of_rows(p.seqlen_q, dq.block_m), p.nheads, call.batch, dq.threads}}};
  std::vector<Launch> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [](const Launch& each) { return each.grid.x > 0; });
  return some;
}

}  // namespace

BwdKernels bwd_kernels(const std::string& arch, const std::string& dtype, int head_dim) {
  const Selection dq = served("bwd_dq", arch, dtype, head_dim);
  return {served("bwd_delta", arch, dtype, head_dim), served("bwd_dkdv", arch, dtype, head_dim), dq};
}

void bwd(const fa_bwd_call& call) {
  const BwdArguments arguments = bwd_arguments(call);
  if (arguments.batch == 0 || arguments.params.nheads == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Place place{device, device_arch(device), static_cast<hipStream_t>(call.stream)};
  const BwdKernels kernels = bwd_kernels(place.arch, dtype_name(call.q.dtype), arguments.params.head_dim);
  const std::vector<Launch> all = launches(arguments, kernels);
  for (const Launch& each : all) require_launchable(each.selection, each.grid);
  for (const Launch& each : all) launch(each.selection, each.grid, arguments.params, place);
}

}  // namespace fa
