// What comes before the loop of a forward with a short prologue.
#pragma once

#include "fa/kernel/block.hpp"

namespace fa {

// The sequence of a batch entry, in scalar registers.
FA_DEVICE Sequence uniform_sequence(const FwdParams& params, int batch) {
  const Sequence found = fa::sequence(params, batch);
  return {uniform(found.q_first), uniform(found.seqlen_q), uniform(found.k_first), uniform(found.seqlen_k)};
}

// The same; afterwards `params` are those of tensors in which every batch entry is at its batch stride.  A
// call without lengths and places in device memory takes one branch.
FA_DEVICE Sequence settled_sequence(FwdParams& params, int batch) {
  if (!has_lengths(params)) return {0, params.seqlen_q, 0, params.seqlen_k};
  const Sequence found = uniform_sequence(params, batch);
  if (params.cu_seqlens_q != nullptr) params.q_batch = params.o_batch = params.lse_batch = 0;
  if (params.cu_seqlens_k != nullptr) {
    params.k_batch = params.v_batch = 0;
  } else if (params.cache_batch_idx != nullptr) {
    const int64_t apart = uniform(place_in_cache(params, batch)) - batch;
    params.k = static_cast<const char*>(params.k) + apart * params.k_batch * 2;
    params.v = static_cast<const char*>(params.v) + apart * params.v_batch * 2;
  }
  return found;
}

}  // namespace fa
