// The HIP functions this library calls: they are those of the runtime that PyTorch has loaded, and null where
// there is none, so that the library also loads without ROCm and never brings a second runtime into the
// process.  On Linux they are weak symbols, on Windows pointers that find_hip_functions() fills.
#pragma once

#include <string>

#ifdef _WIN32
#include "host/launch/windows/hip_functions.hpp"
#else
#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__
#endif
#include <hip/hip_runtime_api.h>
#define FA_HIP_RUNTIME "libamdhip64"
#pragma weak hipDeviceGetAttribute
#pragma weak hipGetDevice
#pragma weak hipGetDeviceCount
#pragma weak hipGetDevicePropertiesR0600
#pragma weak hipGetErrorString
#pragma weak hipModuleGetFunction
#pragma weak hipModuleLaunchKernel
#pragma weak hipModuleLoadData
#pragma weak hipSetDevice
#endif

namespace fa {

// Throws FA_NO_RUNTIME unless every function above is there.
void require_runtime();

// Throws FA_RUNTIME_ERROR with `what` failed, the runtime's own words and `next`, unless hipSuccess.
void check(hipError_t error, const std::string& what, const char* next);

}  // namespace fa
