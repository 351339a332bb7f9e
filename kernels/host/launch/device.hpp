// GPUs as the HIP runtime reports them.
#pragma once

#include <string>

namespace fa {

// `device`, or the current device for -1. Throws FA_NO_RUNTIME, FA_RUNTIME_ERROR.
int resolve_device(int device);

// gcnArchName, for example "gfx942:sramecc+:xnack-". Queried once per device.
std::string device_arch(int device);

// Compute units of the device, also if the runtime counts pairs of them. Queried once per device.
int device_compute_units(int device);

// Makes `device` current, and restores the previous one at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int former_ = -1;
  bool changed_ = false;
};

}  // namespace fa
