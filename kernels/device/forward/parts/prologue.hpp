// Before the loop of a forward kernel: places, sequences, zeros, and their versions for a short prologue.
#pragma once

#include "device/call/places.hpp"
#include "device/forward/parts/block.hpp"
#include "device/forward/parts/products.hpp"

namespace fa {

// The workgroup's place. Packed rows have the hardware's order.
template <class B>
FA_DEVICE WorkgroupPlace place_of(const FwdParams& params) {
  return B::kPacked ? own_place() : place_in(params.order);
}

// Call after the first loads of a prioritised wave.
template <class B>
FA_DEVICE void hasten_no_more() {
  if constexpr (!B::kHastens) return;
  __builtin_amdgcn_sched_barrier(0);
  prioritise<B, 0>();
  __builtin_amdgcn_sched_barrier(0);
}

// Zeros. kByProducts: a matrix instruction writes a whole result, which shortens the prologue.
template <class B, bool kByProducts = false>
FA_DEVICE void clear(typename B::Out& o) {
  using Unit = typename B::Unit;
  typename Unit::A zeros = {};
#pragma unroll
  for (int step = 0; step < B::kOutSteps; ++step) {
    o[step] = {};
    if constexpr (kByProducts) {
      zeros = here(zeros);  // or all steps would be copies of the first
      if constexpr (Unit::kParts == 2) {
        Unit::multiply_half(o[step], zeros, {{zeros}}, 0);
      } else {
        Unit::multiply(o[step], zeros, {{zeros}});
      }
    }
    Unit::settle(o[step]);
  }
}

// The sequence of a batch entry, in scalar registers.
FA_DEVICE Sequence uniform_sequence(const FwdParams& params, int batch) {
  const Sequence found = fa::sequence(params, batch);
  return {uniform(found.q_first), uniform(found.seqlen_q), uniform(found.k_first), uniform(found.seqlen_k)};
}

// Likewise, from the kernel's own arguments `all`. Afterwards `params` describe tensors with every batch
// entry at its batch stride.
FA_DEVICE Sequence settle(FwdParams& params, const FwdParams& all, int batch) {
  const Sequence found = uniform_sequence(all, batch);
  if (all.cu_seqlens_q != nullptr) params.q_batch = params.o_batch = params.lse_batch = 0;
  if (all.cu_seqlens_k != nullptr) {
    params.k_batch = params.v_batch = 0;
  } else if (all.cache_batch_idx != nullptr) {
    const int64_t apart = uniform(place_in_cache(all, batch)) - batch;
    params.k = static_cast<const char*>(params.k) + apart * params.k_batch * 2;
    params.v = static_cast<const char*>(params.v) + apart * params.v_batch * 2;
  }
  return found;
}

// Likewise. A call without lengths and places in device memory takes one branch. kCached: k and v may be a
// cache, with pages, lengths in use, left padding and places.
template <bool kCached>
FA_DEVICE Sequence settled_sequence(FwdParams& params, int batch) {
  if (__builtin_expect((params.rare & kHasLengths) == 0, 1)) return {0, params.seqlen_q, 0, params.seqlen_k};
  if constexpr (kCached) {
    return settle(params, reloaded(kernel_arguments()), batch);
  } else {
    FwdParams all = reloaded(kernel_arguments());
    all.block_table = nullptr, all.seqused_k = nullptr, all.leftpad_k = nullptr,
    all.cache_batch_idx = nullptr;
    return settle(params, all, batch);
  }
}

}  // namespace fa
