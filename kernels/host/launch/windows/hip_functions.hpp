// HIP's functions on Windows, which lacks weak symbols: pointers of the same names in this library's
// namespace, so calls read as on Linux.
#pragma once

#include <hip/hip_runtime_api.h>

namespace fa {

extern decltype(&::hipDeviceGetAttribute) hipDeviceGetAttribute;
extern decltype(&::hipGetDevice) hipGetDevice;
extern decltype(&::hipGetDeviceCount) hipGetDeviceCount;
extern decltype(&::hipGetDevicePropertiesR0600) hipGetDevicePropertiesR0600;
extern decltype(&::hipGetErrorString) hipGetErrorString;
extern decltype(&::hipModuleGetFunction) hipModuleGetFunction;
extern decltype(&::hipModuleLaunchKernel) hipModuleLaunchKernel;
extern decltype(&::hipModuleLoadData) hipModuleLoadData;
extern decltype(&::hipSetDevice) hipSetDevice;

// Sets each pointer to the function of the HIP runtime in this process. Does nothing without a runtime.
void find_hip_functions();

}  // namespace fa
