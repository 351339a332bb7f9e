#include "host/calls/append.hpp"

#include "host/arguments/append_arguments.hpp"
#include "host/arguments/problems.hpp"
#include "host/launch/device.hpp"
#include "host/launch/launch.hpp"

namespace fa {

void append(const fa_append_call& call) {
  const AppendArguments arguments = append_arguments(call);
  const AppendParams& params = arguments.params;
  if (arguments.batch == 0 || params.blocks == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Place place{device, device_arch(device), static_cast<hipStream_t>(call.stream)};
  const Selection selection = served("append", place.arch, dtype_name(call.q.dtype), params.head_dim);
  launch(selection, {params.blocks, arguments.batch, arguments.parts, kAppendThreads}, params, place);
}

}  // namespace fa
