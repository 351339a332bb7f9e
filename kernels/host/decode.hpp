// The split path: few queries against many keys.
#pragma once

#include <string>

#include "fwd_arguments.hpp"
#include "hip.hpp"

namespace fa {

// What a launch needs to know of the place it runs at.
struct Place {
  int device;        // current
  std::string arch;  // as the runtime reports it
  hipStream_t stream;
};

// Queues fa_decode_* and, where params.splits > 1, fa_combine_*.
// Throws FA_UNSUPPORTED where this library has no such kernel.
void decode(const FwdArguments& call, const std::string& dtype, int head_dim, const Place& place);

}  // namespace fa
