// Mapping of heads of q to heads of k and v, in scalar registers. Divisions take tens of instructions, and
// fewer if the compiler knows that operands are non-negative.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

// Number of heads of q per head of k.
template <class Params>
FA_DEVICE int heads_of_a_head(const Params& params) {
  const unsigned heads = params.nheads, heads_k = params.nheads_k;
  return uniform(static_cast<int>(heads / heads_k));
}

// The head of k for head `head` of q: one division, because nheads is a multiple of nheads_k, and none if the
// numbers are equal.
template <class Params>
FA_DEVICE int head_of_keys(const Params& params, int head) {
  const unsigned heads = params.nheads, heads_k = params.nheads_k;
  if (heads == heads_k) return head;
  return uniform(static_cast<int>(static_cast<unsigned>(head) * heads_k / heads));
}

}  // namespace fa
