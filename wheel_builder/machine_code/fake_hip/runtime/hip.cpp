// Exactly the entry points of the HIP runtime called by the wheel's host library.
#include "failure.hpp"
#include "runtime.hpp"

#include <cstring>
#include <exception>

namespace {

using fake_hip::Failure;
using fake_hip::Runtime;

// Runs `action` as the HIP function `call`. Exceptions become error codes.
template <typename Action>
hipError_t entered(const char* call, Action action) noexcept {
  try {
    Runtime::get().enter(call);
    action(Runtime::get());
    return hipSuccess;
  } catch (const Failure& failure) {
    return fake_hip::remember(failure);
  } catch (const std::bad_alloc&) {
    return hipErrorOutOfMemory;
  } catch (const std::exception& error) {
    return fake_hip::remember(Failure(hipErrorUnknown, error.what()));
  }
}

template <typename T>
T* required(T* pointer) {
  if (pointer == nullptr) throw Failure(hipErrorInvalidValue, "a null pointer where a result belongs");
  return pointer;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) hipError_t hipGetDeviceCount(int* count) {
  return entered(__func__, [&](Runtime& runtime) {
    *required(count) = runtime.device_count();
    if (*count == 0) throw Failure(hipErrorNoDevice, "FA_FAKE_HIP_ARCH names no device");
  });
}

__attribute__((visibility("default"))) hipError_t hipGetDevice(int* device) {
  return entered(__func__, [&](Runtime& runtime) { *required(device) = runtime.current_device(); });
}

__attribute__((visibility("default"))) hipError_t hipSetDevice(int device) {
  return entered(__func__, [&](Runtime& runtime) { runtime.set_device(device); });
}

// The header renames hipGetDeviceProperties to this, and the struct with it.
__attribute__((visibility("default"))) hipError_t
hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device) {
  return entered(__func__, [&](Runtime& runtime) {
    // Fields unknown here are nonzero, and a long name fills its field to the end.
    std::memset(required(properties), 'x', sizeof *properties);
    std::strncpy(properties->name, "fake HIP runtime: an ISA emulator, not a GPU", sizeof properties->name);
    std::strncpy(properties->gcnArchName, runtime.arch(device).c_str(), sizeof properties->gcnArchName);
  });
}

__attribute__((visibility("default"))) hipError_t hipDeviceGetAttribute(int* value,
                                                                        hipDeviceAttribute_t attribute,
                                                                        int device) {
  return entered(__func__, [&](Runtime& runtime) {
    const fake_hip::Size size = runtime.size(device);
    switch (attribute) {
      case hipDeviceAttributePhysicalMultiProcessorCount: *required(value) = size.physical; break;
      case hipDeviceAttributeMultiprocessorCount: *required(value) = size.multiprocessors; break;
      case hipDeviceAttributeMaxThreadsPerMultiProcessor: *required(value) = size.threads; break;
      default:
        throw Failure(hipErrorInvalidValue, "attribute " + std::to_string(attribute) + " is not known here");
    }
  });
}

__attribute__((visibility("default"))) const char* hipGetErrorString(hipError_t error) {
  return fake_hip::words_for(error);
}

__attribute__((visibility("default"))) hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  return entered(__func__, [&](Runtime& runtime) {
    *required(module) = reinterpret_cast<hipModule_t>(runtime.load(image));
  });
}

__attribute__((visibility("default"))) hipError_t hipModuleGetFunction(hipFunction_t* function,
                                                                       hipModule_t module, const char* name) {
  return entered(__func__, [&](Runtime& runtime) {
    auto* loaded = reinterpret_cast<fake_hip::Module*>(module);
    *required(function) = reinterpret_cast<hipFunction_t>(runtime.find(loaded, required(name)));
  });
}

__attribute__((visibility("default"))) hipError_t
hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_lds,
                      hipStream_t stream, void** arguments, void** extra) {
  return entered(__func__, [&](Runtime& runtime) {
    if (stream != nullptr)
      throw Failure(hipErrorInvalidHandle, "the fake HIP runtime has only the default stream");
    if (extra != nullptr) throw Failure(hipErrorNotSupported, "arguments in a packed buffer");
    const fake_hip::Kernel* kernel = runtime.known(required(function));
    runtime.launch({kernel, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_lds, arguments});
  });
}

}  // extern "C"
