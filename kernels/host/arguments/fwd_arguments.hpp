// The arguments of a forward call: checked, and converted for the kernel.
#pragma once

#include <cstdint>

#include "device/call/params.hpp"
#include "host/types/fa_types.h"

namespace fa {

// A valid call, ready for a launch.
struct FwdArguments {
  FwdParams params;
  bool masked;
  MaskedParams mask;  // of a masked call; without `fwd`
  bool coded;         // k and v are codes of 8 bits
  CodedParams codes;  // of a coded call; without `fwd`
  bool scaled;        // rows of k hold codes and their scales (kScaledRowBytes); not coded
  std::int64_t batch, head_dim, v_head_dim;
  std::int64_t max_seqlen_q, max_seqlen_k;  // as given; params has them cut to the tensors
  bool aligned;                             // q, k, v and out fulfil FwdParams' alignment
};

// Throws FA_INVALID listing everything wrong with the call.
FwdArguments fwd_arguments(const fa_fwd_call& call);

}  // namespace fa
