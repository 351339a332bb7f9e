// The arguments of an append: checked, and as the kernel takes them.
#pragma once

#include <cstdint>

#include "device/call/params.hpp"
#include "host/types/fa_types.h"

namespace fa {

// A valid call, as a launch needs it.
struct AppendArguments {
  AppendParams params;
  std::int64_t batch;
  int parts;  // 2: k, v; 3: k, v, q
};

// Throws FA_INVALID with everything that is wrong with the call.
AppendArguments append_arguments(const fa_append_call& call);

}  // namespace fa
