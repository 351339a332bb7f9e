// The arguments of a call of multi-head latent attention: checked, and converted for the kernel.
#pragma once

#include "host/arguments/fwd_arguments.hpp"

namespace fa {

// Throws FA_INVALID listing everything wrong with the call.
FwdArguments mla_arguments(const fa_mla_call& call);

}  // namespace fa
