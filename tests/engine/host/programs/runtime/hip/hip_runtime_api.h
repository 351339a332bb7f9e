// The part of HIP's header used by the host library. runtime.cpp stands in for the runtime in these tests.
#pragma once

enum hipError_t { hipSuccess = 0, hipErrorInvalidValue = 1 };
struct hipDeviceProp_tR0600 {
  char gcnArchName[256];
};
using hipModule_t = struct Module*;
using hipFunction_t = struct Function*;
using hipStream_t = struct Stream*;
enum hipDeviceAttribute_t {
  hipDeviceAttributePhysicalMultiProcessorCount = 1,
  hipDeviceAttributeMultiprocessorCount,
  hipDeviceAttributeMaxThreadsPerMultiProcessor,
};

extern "C" {
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipGetDevice(int* device);
hipError_t hipGetDeviceCount(int* count);
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device);
const char* hipGetErrorString(hipError_t error);
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name);
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 hipStream_t stream, void** arguments, void** extra);
hipError_t hipModuleLoadData(hipModule_t* module, const void* image);
hipError_t hipSetDevice(int device);
}
