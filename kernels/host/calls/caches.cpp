#include "host/calls/caches.hpp"

#include "host/arguments/append_arguments.hpp"
#include "host/arguments/problems.hpp"
#include "host/arguments/widen_arguments.hpp"
#include "host/launch/device.hpp"
#include "host/launch/launch.hpp"
#include "host/plan/paths.hpp"

namespace fa {

void append(const fa_append_call& call) {
  const AppendArguments arguments = append_arguments(call);
  const AppendParams& params = arguments.params.append;
  if (arguments.batch == 0 || params.blocks == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Place place{device, device_arch(device), static_cast<hipStream_t>(call.stream)};
  const Op op = arguments.coded ? Op::append_8bit : Op::append;
  const Selection selection = served(name(op), place.arch, dtype_name(call.q.dtype), params.head_dim);
  const Grid grid{params.blocks, arguments.batch, arguments.parts, kAppendThreads};
  if (arguments.coded) return launch(selection, grid, arguments.params, place);
  launch(selection, grid, params, place);
}

void widen(const fa_widen_call& call) {
  const WidenArguments arguments = widen_arguments(call);
  const WidenParams& params = arguments.params;
  if (arguments.batch == 0 || params.blocks == 0) return;
  const int device = resolve_device(call.k_cache.device);
  const DeviceGuard guard(device);
  const Place place{device, device_arch(device), static_cast<hipStream_t>(call.stream)};
  const Selection selection =
      served(name(Op::widen), place.arch, dtype_name(call.k_out.dtype), params.head_dim);
  launch(selection, {params.blocks, arguments.batch, 2, kWidenThreads}, params, place);
}

}  // namespace fa
