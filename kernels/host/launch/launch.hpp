// Queues a kernel, within the hardware's launch limits.
#pragma once

#include <cstdint>
#include <string>

#include "host/launch/hip.hpp"
#include "host/registry/select.hpp"

namespace fa {

// Target of a launch.
struct Place {
  int device;        // current
  std::string arch;  // as the runtime reports it
  hipStream_t stream;
};

// How a kernel divides its work: rows and threads of a workgroup. `kernel`: other code than the shipped.
struct Workgroups {
  int rows;
  int threads;
  hipFunction_t kernel = nullptr;
};

// Workgroups in each direction, and the threads of one, all in x. `kernel`: as above.
struct Grid {
  std::int64_t x, y, z;
  int threads;
  hipFunction_t kernel = nullptr;
};

// Throws FA_UNSUPPORTED if the grid exceeds the limits of a launch.
void require_launchable(const Selection& selection, const Grid& grid);

// `params` is the kernel's only argument. Throws FA_UNSUPPORTED, FA_RUNTIME_ERROR, FA_INTERNAL.
void launch_bytes(const Selection& selection, const Grid& grid, void* params, const Place& place);

template <class Params>
void launch(const Selection& selection, const Grid& grid, Params params, const Place& place) {
  launch_bytes(selection, grid, &params, place);
}

}  // namespace fa
