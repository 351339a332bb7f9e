#include "reference.hpp"

#include <string>

#include "error.hpp"
#include "fa/arch/gfx.hpp"
#include "fa/kernel/config.hpp"
#include "module.hpp"

namespace fa {

namespace {

void require_computed(const FwdParams& params, int head_dim) {
  if (head_dim < 1 || head_dim > kReferenceHeadDim || params.splits > 1) {
    throw Error(FA_INTERNAL, "the reference kernel has head dims 1 to " + std::to_string(kReferenceHeadDim) +
                                 " and no parts of the keys; it was chosen for head_dim " +
                                 std::to_string(head_dim) + " and " + std::to_string(params.splits) +
                                 " parts");
  }
}

FwdTile tile_of(const Selection& selection) {
  Gfx gfx{};
  if (!parse_gfx(selection.gfx, &gfx)) {
    throw Error(FA_INTERNAL,
                "the registry names " + selection.gfx + ", and kernels/include/fa/arch lacks it");
  }
  return reference_tile(gfx);
}

}  // namespace

void launch_reference(const FwdArguments& call, int head_dim, const Selection& selection, int device,
                      hipStream_t stream) {
  const FwdParams& fwd = call.params;
  require_computed(fwd, head_dim);
  const FwdTile tile = tile_of(selection);
  ReferenceParams params{fwd, head_dim, reference_blocks(fwd.seqlen_q)};
  void* arguments[] = {&params};
  const hipError_t error = hipModuleLaunchKernel(
      loaded_kernel(device, selection.gfx, *selection.instance), static_cast<unsigned>(params.blocks),
      static_cast<unsigned>(fwd.nheads), static_cast<unsigned>(call.batch),
      static_cast<unsigned>(tile.threads), 1, 1, 0, stream, arguments, nullptr);
  if (error == hipSuccess) return;
  check(error,
        "launching " + selection.instance->name + " on device " + std::to_string(device) + " (" +
            selection.gfx + ")",
        "AMD_LOG_LEVEL=3 in the environment makes the HIP runtime say more");
}

}  // namespace fa
