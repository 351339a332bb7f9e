// The arguments of a forward call: checked, and as the kernel takes them.
#pragma once

#include <cstdint>

#include "device/call/params.hpp"
#include "host/types/fa_types.h"

namespace fa {

// A valid call, as a launch needs it.
struct FwdArguments {
  FwdParams params;
  bool masked;
  MaskedParams mask;  // of a masked call; without `fwd`
  std::int64_t batch, head_dim, v_head_dim;
  std::int64_t max_seqlen_q, max_seqlen_k;  // as given; those of params are cut to the tensors
  bool aligned;                             // q, k, v and out are as FwdParams wants them
};

// Throws FA_INVALID with everything that is wrong with the call.
FwdArguments fwd_arguments(const fa_fwd_call& call);

}  // namespace fa
