#include "fwd.hpp"

#include <cstdint>
#include <string>

#include "device.hpp"
#include "error.hpp"
#include "fa/arch/dtype.hpp"
#include "fa/arch/gfx.hpp"
#include "fa/kernel/config.hpp"
#include "fwd_arguments.hpp"
#include "hip.hpp"
#include "module.hpp"
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

void launch(hipFunction_t kernel, const FwdTile& tile, FwdArguments call, hipStream_t stream,
            const std::string& what) {
  const auto blocks = (static_cast<std::int64_t>(call.params.seqlen_q) + tile.block_m - 1) / tile.block_m;
  void* arguments[] = {&call.params};
  check(hipModuleLaunchKernel(kernel, static_cast<unsigned>(blocks),
                              static_cast<unsigned>(call.params.nheads), static_cast<unsigned>(call.batch),
                              static_cast<unsigned>(tile.threads), 1, 1, 0, stream, arguments, nullptr),
        "launching " + what, "AMD_LOG_LEVEL=3 in the environment makes the HIP runtime say more");
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
  const hipFunction_t kernel = loaded_kernel(device, selection.gfx, *selection.instance);
  launch(kernel, tile_of(selection), arguments, static_cast<hipStream_t>(call.stream),
         selection.instance->name + " on device " + std::to_string(device) + " (" + selection.gfx + ")");
}

}  // namespace fa
