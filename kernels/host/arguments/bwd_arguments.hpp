// The arguments of a backward call: checked, and as the kernels take them.
#pragma once

#include <cstdint>

#include "device/call/backward_params.hpp"
#include "host/types/fa_types.h"

namespace fa {

// A valid call, as its launches need it.
struct BwdArguments {
  BwdParams params;
  std::int64_t batch;
  std::int64_t head_dim;  // of q and k; that of params is v's, over which delta is summed
  bool masked;
  MaskedBwdParams mask;  // of a masked call; without `bwd`
};

// What the number of dq's sums depends on.
struct BwdSizes {
  bool ragged;
  std::int64_t batch, rows_q, nheads, head_dim;
};

// The elements of dq_sums.
std::int64_t bwd_sums(const BwdSizes& sizes);

// Throws FA_INVALID with everything that is wrong with the call.
BwdArguments bwd_arguments(const fa_bwd_call& call);

}  // namespace fa
