// HIP's functions on Windows, which lacks weak symbols: pointers of the same names in this library's
// namespace, so calls read as on Linux.
#pragma once

#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__
#endif
#include <hip/hip_runtime_api.h>

// Of ROCm 7 and newer: no PyTorch that this library works with brings an older one.
#define FA_HIP_RUNTIME "amdhip64_7.dll"

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
