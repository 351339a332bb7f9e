#include "host/launch/launch.hpp"

#include "host/arguments/problems.hpp"
#include "host/launch/module.hpp"
#include "host/types/error.hpp"

namespace fa {

namespace {

// HIP counts a launch's threads in each direction with 32 bits. In y and z the hardware's limit is lower.
constexpr std::int64_t kMostThreads = UINT32_MAX;

}  // namespace

void require_launchable(const Selection& selection, const Grid& grid) {
  if (grid.x <= kMostThreads / grid.threads && grid.y <= kMaxGridYZ && grid.z <= kMaxGridYZ) return;
  throw Error(FA_UNSUPPORTED, selection.instance->name + " on " + selection.gfx + ": expected at most " +
                                  std::to_string(kMostThreads / grid.threads) + " x " +
                                  std::to_string(kMaxGridYZ) + " x " + std::to_string(kMaxGridYZ) +
                                  " workgroups in a launch, and this call needs " + std::to_string(grid.x) +
                                  " x " + std::to_string(grid.y) + " x " + std::to_string(grid.z) +
                                  "\n  next: cut the call into several, by rows, heads or sequences");
}

void launch_bytes(const Selection& selection, const Grid& grid, void* params, const Place& place) {
  require_launchable(selection, grid);
  const hipFunction_t kernel =
      grid.kernel != nullptr ? grid.kernel : loaded_kernel(place.device, place.arch, *selection.instance);
  const hipError_t error = hipModuleLaunchKernel(
      kernel, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z),
      static_cast<unsigned>(grid.threads), 1, 1, 0, place.stream, &params, nullptr);
  if (error == hipSuccess) return;
  fail(error,
       "launching " + selection.instance->name + " on device " + std::to_string(place.device) + " (" +
           shown(place.arch) + ")",
       "AMD_LOG_LEVEL=3 in the environment makes the HIP runtime say more");
}

}  // namespace fa
