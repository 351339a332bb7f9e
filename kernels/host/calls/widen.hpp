// Widening a cache of 8 bits: checks the call, selects the kernel, queues it.
#pragma once

#include "host/types/fa_types.h"

namespace fa {

// See fa_widen in fa_rocm.h. Throws Error instead of returning a status.
void widen(const fa_widen_call& call);

}  // namespace fa
