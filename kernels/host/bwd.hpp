// Launches the gradients of attention.
#pragma once

#include <string>

#include "fa_rocm.h"
#include "select.hpp"

namespace fa {

// The kernels of a backward, in the order of their launches.
struct BwdKernels {
  Selection delta, dkdv, dq;
};

// arch as the runtime reports it or bare; dtype by name. Throws FA_UNSUPPORTED with the reason where there
// are none.
BwdKernels bwd_kernels(const std::string& arch, const std::string& dtype, int head_dim);

// Throws as bwd_arguments and launch do.
void bwd(const fa_bwd_call& call);

}  // namespace fa
