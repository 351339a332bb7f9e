// The split path: few queries against many keys.
#pragma once

#include "device/call/config.hpp"
#include "host/arguments/fwd_arguments.hpp"
#include "host/launch/launch.hpp"
#include "host/plan/fwd_plan.hpp"

namespace fa {

// Queues the selected fa_decode_* or fa_decode_8bit_* kernel and, if params.splits > 1, fa_combine_*. Throws
// as launch does. A grid that is too large is refused before anything is queued.
void decode(const FwdArguments& call, const Selection& selection, const Kernels& kernels, const Place& place);

// For a kernel whose workgroups have rows of all heads that share a head of k, and a part of the keys.
Grid packed_grid(const FwdArguments& call, const Workgroups& used);

// As `decode`, for a kernel with its own grid and arguments, and head_dim elements per row of out.
void launch_parts(const FwdArguments& call, const Selection& selection, const Grid& grid, const FwdParams& p,
                  int head_dim, const Place& place);

}  // namespace fa
