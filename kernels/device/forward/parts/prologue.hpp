// Before the loop of a forward kernel: places, sequences, zeros, and their versions for a short prologue.
#pragma once

#include "device/call/places.hpp"
#include "device/forward/parts/block.hpp"
#include "device/forward/parts/products.hpp"

namespace fa {

// The workgroup's place. Packed rows have the hardware's order.
template <class B>
FA_DEVICE WorkgroupPlace place_of(const FwdParams& params) {
  if constexpr (B::kPacked) {
    return own_place();
  } else {
    const unsigned blocks = short_blocks<B::kTile.block_m>(params.seqlen_q);
    return place_among(params, blocks * (B::kWide ? params.splits : 1), params.nheads);
  }
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

FA_DEVICE uint64_t bits_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Likewise. Afterwards `params` describe tensors with every batch entry at its batch stride. A call without
// lengths and places in device memory takes one branch.
FA_DEVICE Sequence settled_sequence(FwdParams& params, int batch) {
  const uint64_t given = bits_of(params.cu_seqlens_q) | bits_of(params.cu_seqlens_k) |
                         bits_of(params.seqused_k) | bits_of(params.leftpad_k) |
                         bits_of(params.cache_batch_idx);
  if (given == 0) return {0, params.seqlen_q, 0, params.seqlen_k};
  // Otherwise the condition of each would be computed before the branch.
  pointers_together(params.cu_seqlens_q, params.cu_seqlens_k, params.seqused_k, params.leftpad_k,
                    params.cache_batch_idx);
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
