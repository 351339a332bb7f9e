// The HIP functions used by this library. They belong to the runtime loaded by PyTorch, and are null without
// one. So the library also loads without ROCm and never brings a second runtime into the process. On Linux
// they are weak symbols, on Windows pointers set by find_hip_functions().
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

// Throws FA_NO_RUNTIME unless every function above is present.
void require_runtime();

// Throws FA_RUNTIME_ERROR. The message has the failed step `what`, the runtime's error text and `next`.
[[noreturn]] void fail(hipError_t error, const std::string& what, const char* next);

// Fails unless hipSuccess.
template <class What>
void check(hipError_t error, const What& what, const char* next) {
  if (error != hipSuccess) fail(error, what, next);
}

}  // namespace fa
