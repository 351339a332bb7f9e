// The arguments of a backward call: checked, and converted for the kernels.
#pragma once

#include <cstdint>

#include "device/call/backward_params.hpp"
#include "host/types/fa_types.h"

namespace fa {

// A valid call, ready for its launches.
struct BwdArguments {
  BwdParams params;
  std::int64_t batch;
  std::int64_t head_dim;  // of q and k; params has v's, over which delta is summed
  bool masked;
  MaskedBwdParams mask;  // of a masked call; without `bwd`
};

// Sizes that determine the number of dq's sums.
struct BwdSizes {
  bool ragged;
  std::int64_t batch, rows_q, nheads, head_dim;
};

// The elements of dq_sums.
std::int64_t bwd_sums(const BwdSizes& sizes);

// Throws FA_INVALID listing everything wrong with the call.
BwdArguments bwd_arguments(const fa_bwd_call& call);

}  // namespace fa
