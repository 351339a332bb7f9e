// Forward attention: checks the call, selects the kernel, queues it.
#pragma once

#include "host/types/fa_types.h"

namespace fa {

// See fa_fwd in fa_rocm.h. Throws Error instead of returning a status.
void fwd(const fa_fwd_call& call);

}  // namespace fa
