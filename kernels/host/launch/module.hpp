// Kernels as the HIP runtime has loaded them.
#pragma once

#include "host/launch/hip.hpp"
#include "host/registry/registry.hpp"

namespace fa {

// The kernel of `instance` on `device`, which is current and calls itself `arch`. Loads its code object on
// first use, under the device's name; later calls, from any thread, get the same function.
hipFunction_t loaded_kernel(int device, const std::string& arch, const Instance& instance);

}  // namespace fa
