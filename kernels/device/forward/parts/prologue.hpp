// Before the loop of a forward kernel: places, sequences, zeros, and their versions for a short prologue.
#pragma once

#include "device/forward/parts/block.hpp"
#include "device/forward/parts/products.hpp"

namespace fa {

// The workgroup's place in the grid: its own, or a reordered one for the GPU's XCDs.
template <class B>
FA_DEVICE WorkgroupPlace place_of(const FwdParams& params) {
  const int x = __builtin_amdgcn_workgroup_id_x(), y = __builtin_amdgcn_workgroup_id_y();
  const int z = __builtin_amdgcn_workgroup_id_z();
  if (B::kPacked || B::kTraits.die_units == 0 || params.dies <= 1) return {x, y, z};
  const unsigned blocks = blocks_of_rows(params.seqlen_q, B::kTile.block_m) * (B::kWide ? params.splits : 1);
  const unsigned heads = params.nheads;
  const unsigned number = x + blocks * (y + heads * z);
  const WorkgroupPlace found =
      place_at(neighbours_on_a_die(number, params.dies, params.die_each, params.die_more), blocks, heads);
  return {uniform(found.block), uniform(found.head), uniform(found.batch)};
}

// x / d in scalar registers, for x below kMostReordered.
FA_DEVICE unsigned quotient(unsigned x, unsigned d) {
  return uniform(static_cast<int>(quotient_by(x, __builtin_amdgcn_rcpf(static_cast<float>(d)))));
}

// As place_of, in fewer instructions.
template <class B>
FA_DEVICE WorkgroupPlace short_place_of(const FwdParams& params) {
  const unsigned x = __builtin_amdgcn_workgroup_id_x(), y = __builtin_amdgcn_workgroup_id_y();
  const unsigned z = __builtin_amdgcn_workgroup_id_z();
  if (B::kTraits.die_units == 0 || params.dies <= 1) {
    return {static_cast<int>(x), static_cast<int>(y), static_cast<int>(z)};
  }
  const unsigned blocks = short_blocks<B::kTile.block_m>(params.seqlen_q), heads = params.nheads;
  return place_at(neighbours_on_a_die(x + blocks * (y + heads * z), params.dies, params.die_each,
                                      params.die_more, quotient),
                  blocks, heads, quotient);
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
