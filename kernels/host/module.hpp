// Kernels as the HIP runtime has loaded them.
#pragma once

#include "hip.hpp"
#include "registry.hpp"

namespace fa {

// The kernel of `instance` on `device`, which is current and of arch `gfx`. Loads its code object on
// first use; later calls, from any thread, get the same function.
hipFunction_t loaded_kernel(int device, const std::string& gfx, const Instance& instance);

}  // namespace fa
