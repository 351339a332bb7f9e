#include "host/launch/hip.hpp"

#include "host/types/error.hpp"

namespace fa {

namespace {

bool runtime_is_there() {
#ifdef _WIN32
  find_hip_functions();
#endif
  return hipDeviceGetAttribute != nullptr && hipGetDevice != nullptr && hipGetDeviceCount != nullptr &&
         hipGetDevicePropertiesR0600 != nullptr && hipGetErrorString != nullptr &&
         hipModuleGetFunction != nullptr && hipModuleLaunchKernel != nullptr &&
         hipModuleLoadData != nullptr && hipSetDevice != nullptr;
}

}  // namespace

void require_runtime() {
  if (runtime_is_there()) return;
  throw Error(FA_NO_RUNTIME,
              "no HIP runtime in this process: the installed PyTorch does not bring " FA_HIP_RUNTIME
              " (it is a CPU or CUDA build), so no kernel can run\n"
              "  next: install a ROCm build of PyTorch; python -m flash_attn_rocm doctor says which");
}

void fail(hipError_t error, const std::string& what, const char* next) {
  throw Error(FA_RUNTIME_ERROR, what + " failed: " + hipGetErrorString(error) + " (HIP error " +
                                    std::to_string(static_cast<int>(error)) + ")\n  next: " + next);
}

}  // namespace fa
