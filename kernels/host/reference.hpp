// The launch of the plain kernel, which takes any head dim and any strides.
#pragma once

#include "fwd_arguments.hpp"
#include "hip.hpp"
#include "select.hpp"

namespace fa {

// Queues the selected fa_reference_* kernel on a stream of `device`, which is current. The call has at least
// one sequence, row and head; its keys are not cut into parts. Throws FA_RUNTIME_ERROR, FA_INTERNAL.
void launch_reference(const FwdArguments& call, int head_dim, const Selection& selection, int device,
                      hipStream_t stream);

}  // namespace fa
