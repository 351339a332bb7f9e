#include "host/launch/windows/hip_functions.hpp"

#include <mutex>

#include "host/launch/windows/loaded.hpp"

namespace fa {

decltype(&::hipDeviceGetAttribute) hipDeviceGetAttribute = nullptr;
decltype(&::hipGetDevice) hipGetDevice = nullptr;
decltype(&::hipGetDeviceCount) hipGetDeviceCount = nullptr;
decltype(&::hipGetDevicePropertiesR0600) hipGetDevicePropertiesR0600 = nullptr;
decltype(&::hipGetErrorString) hipGetErrorString = nullptr;
decltype(&::hipModuleGetFunction) hipModuleGetFunction = nullptr;
decltype(&::hipModuleLaunchKernel) hipModuleLaunchKernel = nullptr;
decltype(&::hipModuleLoadData) hipModuleLoadData = nullptr;
decltype(&::hipSetDevice) hipSetDevice = nullptr;

namespace {

template <typename Function>
void find(Function& function, const char* name) {
  function = loaded_function<Function>(FA_HIP_RUNTIME, name);
}

}  // namespace

void find_hip_functions() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  // A runtime may be loaded later. Its functions are looked up once.
  if (hipSetDevice != nullptr) return;
  find(hipDeviceGetAttribute, "hipDeviceGetAttribute");
  find(hipGetDevice, "hipGetDevice");
  find(hipGetDeviceCount, "hipGetDeviceCount");
  find(hipGetDevicePropertiesR0600, "hipGetDevicePropertiesR0600");
  find(hipGetErrorString, "hipGetErrorString");
  find(hipModuleGetFunction, "hipModuleGetFunction");
  find(hipModuleLaunchKernel, "hipModuleLaunchKernel");
  find(hipModuleLoadData, "hipModuleLoadData");
  find(hipSetDevice, "hipSetDevice");
}

}  // namespace fa
