// How forward kernels load their arguments.
#pragma once

#include "device/arch/device.hpp"
#include "device/call/params.hpp"
#include "device/call/places.hpp"

namespace fa {

// The kernel's arguments in the constant address space.
using Arguments = __attribute__((address_space(4))) const FwdParams*;
FA_DEVICE Arguments kernel_arguments() { return (Arguments)__builtin_amdgcn_kernarg_segment_ptr(); }

// The same arguments behind a pointer opaque to the compiler. Otherwise it loads the arguments of two loops
// before the first of them, and exceeds the scalar registers.
FA_DEVICE const FwdParams& reloaded(Arguments arguments) {
  asm volatile("" : "+s"(arguments));
  return *(const FwdParams*)arguments;
}

// The arguments needed by a plain kernel before its loop, loaded with one wait. The compiler would
// wait at the first use of each value.
FA_DEVICE FwdParams loaded_at_once(Arguments arguments) {
  FwdParams params = reloaded(arguments);
  loaded_together(params.q, params.k, params.v, params.out, params.lse, params.sink);
  loaded_together(params.q_batch, params.q_row, params.q_head, params.k_batch, params.k_row, params.k_head,
                  params.v_batch, params.v_row, params.v_head);
  loaded_together(params.o_batch, params.o_row, params.o_head, params.lse_batch, params.lse_head);
  loaded_together(params.seqlen_q, params.seqlen_k, params.nheads, params.nheads_k, params.window_left,
                  params.window_right, params.scale, params.rare);
  order_together(params.order);
  return params;
}

// Waits once for where q, k, v and descales of decode over 8 bits are. Later uses find them in registers.
// kAll: scalar registers suffice for all of them.
template <bool kAll>
FA_DEVICE void load_places(const CodedParams& coded) {
  const FwdParams& p = coded.fwd;
  asm volatile("" ::"s"(p.q), "s"(p.k), "s"(p.v), "s"(p.q_row), "s"(p.q_head), "s"(p.k_row), "s"(p.v_row),
               "s"(p.q_batch), "s"(p.k_batch), "s"(p.k_head), "s"(coded.k_descale), "s"(coded.v_descale));
  if constexpr (kAll) asm volatile("" ::"s"(p.v_head));
}

// Likewise for where a packed row of out, or of a part, is.
FA_DEVICE void load_places_of_row(const FwdParams& p) {
  asm volatile("" ::"s"(p.partial_out), "s"(p.partial_lse), "s"(p.partial_split), "s"(p.splits), "s"(p.out),
               "s"(p.o_batch), "s"(p.o_head), "s"(p.o_row), "s"(p.lse), "s"(p.lse_batch), "s"(p.lse_head),
               "s"(p.cu_seqlens_q));
}

// The arguments of a forward with a mask. With a short prologue, `params` are a copy of the first of them.
// The others are loaded here, so they occupy no scalar registers before.
template <class B>
FA_DEVICE const MaskedParams& masked_params(const B& block) {
  return reinterpret_cast<const MaskedParams&>(B::kConfig.short_prologue ? reloaded(kernel_arguments())
                                                                         : block.params);
}

}  // namespace fa
