// Writing into caches, and widening them: checks the call, selects the kernel, queues it.
#pragma once

#include "host/types/fa_types.h"

namespace fa {

// See fa_append and fa_widen in fa_rocm.h. They throw Error instead of returning a status.
void append(const fa_append_call& call);
void widen(const fa_widen_call& call);

}  // namespace fa
