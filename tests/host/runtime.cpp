// A HIP runtime that loads and launches nothing: it keeps what would have been launched.
#include <hip/hip_runtime_api.h>

#include <cstring>

namespace {

constexpr int kDevices = 2;

struct Launch {
  unsigned long long count;
  unsigned grid[3], block[3];
} last;

}  // namespace

extern "C" {

__attribute__((visibility("default"))) const Launch* fake_launch() { return &last; }

hipError_t hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}

hipError_t hipGetDeviceCount(int* count) {
  *count = kDevices;
  return hipSuccess;
}

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device) {
  if (device < 0 || device >= kDevices) return hipErrorInvalidValue;
  std::strcpy(properties->gcnArchName, "gfx942:sramecc+:xnack-");
  return hipSuccess;
}

const char* hipGetErrorString(hipError_t) { return "invalid argument"; }

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t, const char*) {
  *function = nullptr;
  return hipSuccess;
}

hipError_t hipModuleLaunchKernel(hipFunction_t, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned, hipStream_t,
                                 void**, void**) {
  last = {last.count + 1, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}};
  return hipSuccess;
}

hipError_t hipModuleLoadData(hipModule_t* module, const void*) {
  *module = nullptr;
  return hipSuccess;
}

hipError_t hipSetDevice(int device) { return device < kDevices ? hipSuccess : hipErrorInvalidValue; }

}  // extern "C"
