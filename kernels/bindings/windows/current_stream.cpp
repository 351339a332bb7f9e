#include "bindings/current_stream.hpp"

#include "host/launch/windows/loaded.hpp"

namespace {

constexpr const char* kTorch = "torch_cpu.dll";
constexpr const char* kTorchHip = "torch_hip.dll";

// The stable ABI since PyTorch 2.13: a handle, then its stream.
AOTITorchError by_handle(std::int32_t device, void** stream) {
  static const auto current =
      fa::loaded_function<decltype(&aoti_torch_get_current_stream)>(kTorch, "aoti_torch_get_current_stream");
  static const auto native =
      fa::loaded_function<AOTITorchError (*)(StreamHandle, void**)>(kTorch, "torch_stream_native_handle");
  static const auto release =
      fa::loaded_function<decltype(&aoti_torch_delete_stream)>(kTorch, "aoti_torch_delete_stream");
  StreamHandle handle = nullptr;
  if (const AOTITorchError error = current(device, &handle); error != AOTI_TORCH_SUCCESS) return error;
  const AOTITorchError error = native(handle, stream);
  release(handle);
  return error;
}

}  // namespace

CurrentStream find_current_stream() {
  static const auto direct =
      fa::loaded_function<CurrentStream>(kTorchHip, "aoti_torch_get_current_cuda_stream");
  if (direct != nullptr) return direct;
  return fa::loaded_function<FARPROC>(kTorch, "torch_stream_native_handle") == nullptr ? nullptr : by_handle;
}
