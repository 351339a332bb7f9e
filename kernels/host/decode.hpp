// The split path: few queries against many keys.
#pragma once

#include "fwd_arguments.hpp"
#include "fwd_plan.hpp"
#include "launch.hpp"

namespace fa {

// Queues the selected fa_decode_* kernel and, where params.splits > 1, fa_combine_*.
// Throws as launch does; a grid that is too large is refused before anything is queued.
void decode(const FwdArguments& call, const Selection& selection, const Kind& kind, const Place& place);

}  // namespace fa
