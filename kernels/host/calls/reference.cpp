#include "host/calls/reference.hpp"

#include <cstdint>

#include "device/call/config.hpp"

namespace fa {

void launch_reference(const FwdArguments& call, const Selection& selection, const Kernels& kernels,
                      const Place& place) {
  const FwdParams& fwd = call.params;
  const ReferenceParams params{fwd, static_cast<std::int32_t>(call.head_dim), reference_blocks(fwd.seqlen_q)};
  launch(selection, {params.blocks, fwd.nheads, call.batch, reference_tile(kernels.arch).threads}, params,
         place);
}

}  // namespace fa
