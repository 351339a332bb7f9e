// Which heads of q share a head of k and v, in scalar registers.  Divisions take tens of instructions, and
// fewer where the compiler knows that nothing is negative.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

// How many heads of q share one.
template <class Params>
FA_DEVICE int heads_of_a_head(const Params& params) {
  const unsigned heads = params.nheads, heads_k = params.nheads_k;
  return uniform(static_cast<int>(heads / heads_k));
}

// The one that head `head` of q shares: one division, because nheads is a multiple of nheads_k, and none
// where each has its own.
template <class Params>
FA_DEVICE int head_of_keys(const Params& params, int head) {
  const unsigned heads = params.nheads, heads_k = params.nheads_k;
  if (heads == heads_k) return head;
  return uniform(static_cast<int>(static_cast<unsigned>(head) * heads_k / heads));
}

}  // namespace fa
