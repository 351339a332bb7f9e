// Forward attention: checks the call, selects the kernel, queues it.
#pragma once

#include "host/types/fa_types.h"

namespace fa {

// See fa_fwd in fa_rocm.h. Throws Error instead of returning a status.
void fwd(const fa_fwd_call& call);

// Likewise, of q, k and v in fp8, with products of fp8.
void fwd_fp8(const fa_fwd_fp8_call& call);

// Likewise, quantising q, k and v first, with products of int8 and fp8.
void fwd_int8(const fa_fwd_int8_call& call);

}  // namespace fa
