#include "host/launch/device.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "host/launch/hip.hpp"
#include "host/plan/plan.hpp"

namespace fa {

namespace {

constexpr const char* kAskDoctor = "python -m flash_attn_rocm doctor shows which GPUs this process can use";

std::string ask_arch(int device) {
  hipDeviceProp_tR0600 properties{};
  check(hipGetDevicePropertiesR0600(&properties, device),
        "asking the HIP runtime for the properties of device " + std::to_string(device), kAskDoctor);
  // A runtime with a longer name may have filled the whole field.
  const auto& name = properties.gcnArchName;
  return {std::begin(name), std::find(std::begin(name), std::end(name), '\0')};
}

int ask_attribute(hipDeviceAttribute_t attribute, int device) {
  int value = 0;
  check(hipDeviceGetAttribute(&value, attribute, device),
        "asking the HIP runtime for the compute units of device " + std::to_string(device), kAskDoctor);
  return value;
}

int ask_compute_units(int device) {
  return compute_units_of(ask_arch(device),
                          {ask_attribute(hipDeviceAttributePhysicalMultiProcessorCount, device),
                           ask_attribute(hipDeviceAttributeMultiprocessorCount, device),
                           ask_attribute(hipDeviceAttributeMaxThreadsPerMultiProcessor, device)});
}

// The value for a device, queried once.
template <typename Value>
class Known {
 public:
  explicit Known(Value (*ask)(int)) : ask_(ask) {}

  Value of(int device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = values_.find(device);
    return found != values_.end() ? found->second : values_.emplace(device, ask_(device)).first->second;
  }

 private:
  Value (*ask_)(int);
  std::mutex mutex_;
  std::map<int, Value> values_;
};

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
  static Known<std::string> known(ask_arch);
  return known.of(device);
}

int device_compute_units(int device) {
  require_runtime();
  static Known<int> known(ask_compute_units);
  return known.of(device);
}

DeviceGuard::DeviceGuard(int device) : former_(current_device()) {
  if (former_ == device) return;
  check(hipSetDevice(device), "making device " + std::to_string(device) + " current", kAskDoctor);
  changed_ = true;
}

DeviceGuard::~DeviceGuard() {
  // A destructor cannot report the failure. The caller's next HIP call will.
  if (changed_) static_cast<void>(hipSetDevice(former_));
}

}  // namespace fa
