#include "device.hpp"

#include <map>
#include <mutex>

#include "hip.hpp"

namespace fa {

namespace {

constexpr const char* kAskDoctor = "python -m flash_attn_rocm doctor shows which GPUs this process can use";

std::string ask_arch(int device) {
  hipDeviceProp_tR0600 properties{};
  check(hipGetDevicePropertiesR0600(&properties, device),
        "asking the HIP runtime for the properties of device " + std::to_string(device), kAskDoctor);
  return properties.gcnArchName;
}

int current_device() {
  int device = -1;
  check(hipGetDevice(&device), "asking the HIP runtime for the current device", kAskDoctor);
  return device;
}

}  // namespace

int resolve_device(int device) {
  require_runtime();
  return device < 0 ? current_device() : device;
}

std::string device_arch(int device) {
  require_runtime();
  static std::mutex mutex;
  static std::map<int, std::string> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(device);
  return found != known.end() ? found->second : known.emplace(device, ask_arch(device)).first->second;
}

DeviceGuard::DeviceGuard(int device) : former_(current_device()) {
  if (former_ == device) return;
  check(hipSetDevice(device), "making device " + std::to_string(device) + " current", kAskDoctor);
  changed_ = true;
}

DeviceGuard::~DeviceGuard() {
  // A destructor cannot report; the next HIP call of the caller will.
  if (changed_) static_cast<void>(hipSetDevice(former_));
}

}  // namespace fa
