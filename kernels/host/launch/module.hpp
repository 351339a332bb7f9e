// Kernels loaded by the HIP runtime.
#pragma once

#include "host/launch/hip.hpp"
#include "host/registry/registry.hpp"

namespace fa {

// The kernel of `instance` on `device`, which is current and reports `arch`. Loads its code object on first
// use, relabelled for the device; the first kernel of an arch unpacks the arch's code. Later calls, from any
// thread, get the same function.
hipFunction_t loaded_kernel(int device, const std::string& arch, const Instance& instance);

// The same kernel with another row of the table of tiles, from a code object for the arch of its machine
// code. The caller keeps `code` for the process's lifetime.
hipFunction_t load_candidate(int device, const std::string& arch, const Instance& instance,
                             const std::string& row, Bytes code);

}  // namespace fa
