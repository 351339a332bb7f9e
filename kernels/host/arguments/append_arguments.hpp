// The arguments of an append: checked, and converted for the kernel.
#pragma once

#include <cstdint>

#include "device/call/params.hpp"
#include "host/types/fa_types.h"

namespace fa {

// A valid call, ready for a launch.
struct AppendArguments {
  CodedAppendParams params;  // `append` alone, unless the cache has 8 bits
  std::int64_t batch;
  int parts;  // 2: k, v; 3: k, v, q
  bool coded;
};

// Throws FA_INVALID listing everything wrong with the call.
AppendArguments append_arguments(const fa_append_call& call);

}  // namespace fa
