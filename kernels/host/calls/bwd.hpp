// Launches the gradients of attention.
#pragma once

#include <string>

#include "host/plan/plan.hpp"
#include "host/registry/select.hpp"
#include "host/types/fa_types.h"

namespace fa {

// The kernels of a backward, in the order of their launches.
struct BwdKernels {
  Selection delta, by_keys, dq;
};

// arch as the runtime reports it or bare; dtype by name. Throws FA_UNSUPPORTED with the reason if there are
// no kernels.
BwdKernels bwd_kernels(BwdPath path, const std::string& arch, const std::string& dtype, int head_dim,
                       bool masked);

// The properties that determine a path. `wanted`: name of a BwdPath, or "" for the default of the arch's
// table.
struct BwdPlanRequest {
  std::string arch, dtype;
  int head_dim;
  bool featured;  // ALiBi, softcap or dropout
  bool deterministic;
  bool masked;  // with an attn_mask that kernels read
  std::string wanted;
};

// Throws FA_UNSUPPORTED if there are no kernels, FA_INVALID for an unknown `wanted`.
BwdPlan bwd_plan(const BwdPlanRequest& request);

// Throws as bwd_arguments and launch do.
void bwd(const fa_bwd_call& call);

}  // namespace fa
