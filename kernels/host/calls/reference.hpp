// Launches the reference kernel, for any head dim and any strides.
#pragma once

#include "host/arguments/fwd_arguments.hpp"
#include "host/launch/launch.hpp"
#include "host/plan/fwd_plan.hpp"

namespace fa {

// Queues the selected fa_reference_* kernel. The call has at least one sequence, row and head, a head dim of
// at most kMaxHeadDim, and unsplit keys. Throws as launch does.
void launch_reference(const FwdArguments& call, const Selection& selection, const Kernels& kernels,
                      const Place& place);

}  // namespace fa
