// Appending to a cache: checks the call, selects the kernel, queues it.
#pragma once

#include "host/types/fa_types.h"

namespace fa {

// See fa_append in fa_rocm.h. Throws Error instead of returning a status.
void append(const fa_append_call& call);

}  // namespace fa
