#include "bwd.hpp"

#include <algorithm>
#include <iterator>

#include "bwd_arguments.hpp"
#include "device.hpp"
#include "error.hpp"
#include "fa/kernel/backward_config.hpp"
#include "launch.hpp"
#include "problems.hpp"

namespace fa {

namespace {

struct Launch {
  Selection selection;
  Grid grid;
};

std::int64_t blocks(std::int64_t rows, int block) { return (rows + block - 1) / block; }

// Every launch of a call; those without a row are left out. dk and dv are written, with 0, where there is no
// query.
std::vector<Launch> launches(const BwdArguments& call, const BwdKernels& kernels) {
  const BwdParams& p = call.params;
  Gfx arch{};
  DType dtype{};
  if (!parse_gfx(kernels.dq.gfx, &arch) || !parse_dtype(kernels.dq.instance->dtype, &dtype)) {
    throw Error(FA_INTERNAL, "the registry names " + kernels.dq.gfx + " and " + kernels.dq.instance->dtype +
                                 ", and kernels/include/fa/arch lacks one of them");
  }
  const DkDvTile dkdv = dkdv_tile(arch, dtype, p.head_dim);
  const FwdTile dq = dq_tile(arch, dtype, p.head_dim);
  const std::vector<Launch> all = {
      {kernels.delta, {blocks(p.seqlen_q, kDeltaRows), p.nheads, call.batch, kDeltaThreads}},
      {kernels.dkdv, {blocks(p.seqlen_k, dkdv.block_n), p.nheads_k, call.batch, dkdv.threads}},
      {kernels.dq, {blocks(p.seqlen_q, dq.block_m), p.nheads, call.batch, dq.threads}}};
  std::vector<Launch> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [](const Launch& each) { return each.grid.x > 0; });
  return some;
}

}  // namespace

BwdKernels bwd_kernels(const std::string& arch, const std::string& dtype, std::int64_t head_dim) {
  const int bounded = static_cast<int>(std::clamp<std::int64_t>(head_dim, -1, INT32_MAX));
  const Selection dq = served("bwd_dq", arch, dtype, bounded);
  return {served("bwd_delta", arch, dtype, bounded), served("bwd_dkdv", arch, dtype, bounded), dq};
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
