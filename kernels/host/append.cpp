#include "append.hpp"

#include <string>

#include "append_arguments.hpp"
#include "device.hpp"
#include "error.hpp"
#include "hip.hpp"
#include "module.hpp"
#include "problems.hpp"
#include "select.hpp"

namespace fa {

namespace {

hipError_t launch(hipFunction_t kernel, AppendArguments call, hipStream_t stream) {
  void* arguments[] = {&call.params};
  return hipModuleLaunchKernel(kernel, static_cast<unsigned>(call.params.blocks),
                               static_cast<unsigned>(call.batch), static_cast<unsigned>(call.parts),
                               kAppendThreads, 1, 1, 0, stream, arguments, nullptr);
}

}  // namespace

void append(const fa_append_call& call) {
  const AppendArguments arguments = append_arguments(call);
  if (arguments.batch == 0 || arguments.params.blocks == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Selection selection =
      select("append", device_arch(device), dtype_name(call.q.dtype), arguments.params.head_dim);
  if (selection.instance == nullptr) throw Error(FA_UNSUPPORTED, selection.reason);
  const hipFunction_t kernel = loaded_kernel(device, selection.gfx, *selection.instance);
  const hipError_t error = launch(kernel, arguments, static_cast<hipStream_t>(call.stream));
  if (error == hipSuccess) return;
  check(error,
        "launching " + selection.instance->name + " on device " + std::to_string(device) + " (" +
            selection.gfx + ")",
        "AMD_LOG_LEVEL=3 in the environment makes the HIP runtime say more");
}

}  // namespace fa
