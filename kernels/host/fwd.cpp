#include "fwd.hpp"

#include <cstdint>
#include <string>

#include "decode.hpp"
#include "device.hpp"
#include "error.hpp"
#include "fa/arch/dtype.hpp"
#include "fa/arch/gfx.hpp"
#include "fa/kernel/config.hpp"
#include "fwd_arguments.hpp"
#include "hip.hpp"
#include "module.hpp"
#include "plan.hpp"
#include "problems.hpp"
#include "select.hpp"

namespace fa {

namespace {

FwdTile tile_of(const Selection& selection) {
  Gfx gfx{};
  DType dtype{};
  if (!parse_gfx(selection.gfx, &gfx) || !parse_dtype(selection.instance->dtype, &dtype)) {
    throw Error(FA_INTERNAL, "the registry names " + selection.gfx + " and " + selection.instance->dtype +
                                 ", and kernels/include/fa/arch lacks one of them");
  }
  return fwd_tile(gfx, dtype, selection.instance->head_dim);
}

// HIP counts a launch's threads in each direction with 32 bits.
unsigned grid_x(const FwdParams& params, const FwdTile& tile) {
  const auto blocks = (static_cast<std::int64_t>(params.seqlen_q) + tile.block_m - 1) / tile.block_m;
  if (blocks * tile.threads > UINT32_MAX) {
    throw Error(FA_UNSUPPORTED,
                "q: " + std::to_string(params.seqlen_q) + " rows are more than one launch takes");
  }
  return static_cast<unsigned>(blocks);
}

hipError_t launch(hipFunction_t kernel, const FwdTile& tile, FwdArguments call, hipStream_t stream) {
  void* arguments[] = {&call.params};
  return hipModuleLaunchKernel(kernel, grid_x(call.params, tile), static_cast<unsigned>(call.params.nheads),
                               static_cast<unsigned>(call.batch), static_cast<unsigned>(tile.threads), 1, 1,
                               0, stream, arguments, nullptr);
}

// A call that brings room for parts wants as many; the path of another does not depend on the device.
Path path_of(const FwdArguments& arguments, const Selection& selection) {
  const FwdParams& p = arguments.params;
  Gfx gfx{};
  DType dtype{};
  parse_gfx(selection.gfx, &gfx), parse_dtype(selection.instance->dtype, &dtype);
  const bool dropout = p.dropout_below != 0;
  if (p.splits > 1 && dropout) throw Error(FA_INVALID, "partial_out: expected none together with dropout_p");
  if (p.splits > 1) return Path::split;
  const int head_dim = selection.instance->head_dim;
  return plan({gfx, dtype, head_dim, arguments.batch, p.seqlen_q, p.seqlen_k, p.nheads, p.nheads_k, 0, 1,
               dropout, true})
      .path;
}

}  // namespace

void fwd(const fa_fwd_call& call) {
  const FwdArguments arguments = fwd_arguments(call);
  const FwdParams& params = arguments.params;
  if (arguments.batch == 0 || params.seqlen_q == 0 || params.nheads == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Selection selection = select("fwd", device_arch(device), dtype_name(call.q.dtype),
                                     static_cast<int>(call.q.size[call.q.dims - 1]));
  if (selection.instance == nullptr) throw Error(FA_UNSUPPORTED, selection.reason);
  if (path_of(arguments, selection) == Path::split) {
    return decode(arguments, selection.instance->dtype, selection.instance->head_dim,
                  {device, selection.gfx, static_cast<hipStream_t>(call.stream)});
  }
  const hipFunction_t kernel = loaded_kernel(device, selection.gfx, *selection.instance);
  const hipError_t error =
      launch(kernel, tile_of(selection), arguments, static_cast<hipStream_t>(call.stream));
  if (error == hipSuccess) return;
  check(error,
        "launching " + selection.instance->name + " on device " + std::to_string(device) + " (" +
            selection.gfx + ")",
        "AMD_LOG_LEVEL=3 in the environment makes the HIP runtime say more");
}

}  // namespace fa
