// How the backward kernels read their arguments.
#pragma once

#include "device/arch/device.hpp"
#include "device/call/backward_params.hpp"
#include "device/call/places.hpp"
#include "device/call/sequence.hpp"

namespace fa {

// The kernel's arguments in the constant address space.
using BwdArguments = __attribute__((address_space(4))) const BwdParams*;
FA_DEVICE BwdArguments backward_arguments() { return (BwdArguments)__builtin_amdgcn_kernarg_segment_ptr(); }

// The arguments behind a pointer that the compiler cannot recognise. It then loads them at their use, instead
// of keeping all of them in scalar registers through the loops.
FA_DEVICE const BwdParams& loaded_here(BwdArguments arguments) {
  asm volatile("" : "+s"(arguments));
  return *(const BwdParams*)arguments;
}

// The arguments needed by a kernel before its loop, loaded with one wait. The compiler would wait at the
// first use of each value. kFeatured: with those of featured().
template <bool kFeatured = false>
FA_DEVICE BwdParams loaded_at_once(BwdArguments arguments) {
  BwdParams params = loaded_here(arguments);
  const auto wait_for = [](BwdInput& tensor) {
    loaded_together(tensor.data, tensor.batch, tensor.row, tensor.head);
  };
  loaded_together(params.scale, params.lse_batch, params.lse_head, params.dq_blocks);
  wait_for(params.q), wait_for(params.k), wait_for(params.v), wait_for(params.dout);
  pointers_together(params.lse, params.delta, params.dq_sums, params.cu_seqlens_q, params.cu_seqlens_k);
  loaded_together(params.seqlen_q, params.seqlen_k, params.rows_q, params.rows_k, params.nheads,
                  params.nheads_k);
  loaded_together(params.window_left, params.window_right);
  order_together(params.order);
  if constexpr (kFeatured) loaded_together(params.alibi_slopes, params.softcap, params.dropout_below);
  return params;
}

// Whether a call takes the loop with all features: see featured(). kAtOnce: loaded with one wait.
template <bool kAtOnce>
FA_DEVICE bool is_featured(BwdArguments arguments) {
  const BwdParams& all = loaded_here(arguments);
  if constexpr (!kAtOnce) return featured(all);
  BwdParams params{};
  params.alibi_slopes = all.alibi_slopes, params.softcap = all.softcap;
  params.dropout_below = all.dropout_below;
  loaded_together(params.alibi_slopes, params.softcap, params.dropout_below);
  return featured(params);
}

// Whether sequences have ends. A call with a mask is dense.
template <class B>
FA_DEVICE bool is_ragged(const int32_t* ends) {
  return !B::kMasked && ends != nullptr;
}

// As for the forward: lengths in device memory are clamped.
FA_DEVICE Sequence sequence(const BwdParams& p, int batch) {
  Sequence s = queries(p, batch);
  s.seqlen_k = p.seqlen_k;
  if (p.cu_seqlens_k != nullptr) {
    s.k_first = cut(p.cu_seqlens_k[batch], 0, p.rows_k);
    const int end = cut(p.cu_seqlens_k[batch + 1], s.k_first, p.rows_k);
    s.seqlen_k = cut(end - s.k_first, 0, p.seqlen_k);
  }
  return {uniform(s.q_first), uniform(s.seqlen_q), uniform(s.k_first), uniform(s.seqlen_k)};
}

template <class B>
FA_DEVICE Sequence sequence_of(const BwdParams& p, int batch) {
  if constexpr (B::kMasked) return {0, p.seqlen_q, 0, p.seqlen_k};
  return sequence(p, batch);
}

}  // namespace fa
