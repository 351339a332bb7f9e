// A HIP runtime that records launches. It loads and launches nothing.
#include <hip/hip_runtime_api.h>

#include <cstring>
#include <map>
#include <string>

namespace {

constexpr int kDevices = 2;

constexpr int kKept = 4, kMostName = 64;

struct Launch {
  char kernel[kMostName];
  unsigned grid[3], block[3];
};

// The newest are in turn at the places of `newest`.
struct Launches {
  unsigned long long count;
  Launch newest[kKept];
} launches;

}  // namespace

struct Function {
  std::string name;
};

extern "C" {

__attribute__((visibility("default"))) const Launches* fake_launches() { return &launches; }

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t, int device) {
  *value = 304;
  return device < kDevices ? hipSuccess : hipErrorInvalidValue;
}

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

// A module's code object is the name of its kernel.
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  if (std::strcmp(reinterpret_cast<const char*>(module), name) != 0) return hipErrorInvalidValue;
  static std::map<std::string, Function> all;
  *function = &all.try_emplace(name, Function{name}).first->second;
  return hipSuccess;
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned, hipStream_t,
                                 void**, void**) {
  Launch& launch = launches.newest[launches.count++ % kKept];
  launch = {{}, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}};
  function->name.copy(launch.kernel, kMostName - 1);
  return hipSuccess;
}

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  *module = reinterpret_cast<hipModule_t>(const_cast<void*>(image));
  return hipSuccess;
}

hipError_t hipSetDevice(int device) { return device < kDevices ? hipSuccess : hipErrorInvalidValue; }

}  // extern "C"
