// The arguments of widening a cache: checked, and converted for the kernel.
#pragma once

#include <cstdint>

#include "device/call/params.hpp"
#include "host/types/fa_types.h"

namespace fa {

// A valid call, ready for a launch.
struct WidenArguments {
  WidenParams params;
  std::int64_t batch;
};

// Throws FA_INVALID listing everything wrong with the call.
WidenArguments widen_arguments(const fa_widen_call& call);

}  // namespace fa
