// HIP's functions on Windows, where no symbol is weak: pointers of the same names in this library's
// namespace, so that calls read as on Linux.
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

// Points each to the function of the HIP runtime in this process; does nothing while there is none.
void find_hip_functions();

}  // namespace fa
