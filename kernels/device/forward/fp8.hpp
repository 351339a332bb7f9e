// The forward kernel of q, k and v in fp8, with products in fp8: the plain loop. Strides of q, k and v count
// pairs of bytes, so rows are placed as those of 16-bit elements.
#pragma once

#include "device/forward/forward.hpp"

namespace fa {

template <class Plain>
FA_DEVICE void run_fp8(LdsBytes lds) {
  if constexpr (Plain::kConfig.short_prologue) {
    FwdParams own = loaded_at_once(kernel_arguments());
    run_in_short<Plain>(own, lds);
  } else {
    FwdParams own = fp8_params().fwd;
    own.block_table = nullptr, own.seqused_k = nullptr, own.leftpad_k = nullptr,
    own.cache_batch_idx = nullptr;
    if constexpr (Plain::kCounts) own.cu_seqlens_q = nullptr, own.cu_seqlens_k = nullptr;
    if constexpr (Plain::kFp8Values) descale<Plain>(own, place_of<Plain>(own));
    run_forward<Plain>(own, lds);
  }
}

// Defines the kernel. The host selects it for calls without features.
#define FA_FORWARD_FP8(name, dtype, head_dim) FA_FORWARD_CODES(name, dtype, head_dim, fwd_fp8)
// Likewise of q and k in int8.
#define FA_FORWARD_INT8(name, dtype, head_dim) FA_FORWARD_CODES(name, dtype, head_dim, fwd_int8)
#define FA_FORWARD_CODES(name, dtype, head_dim, op)                                           \
  FA_KERNEL(forward, op, dtype, head_dim)                                                     \
  name(const fa::Fp8Params) {                                                                 \
    using Plain = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, fa::Op::op>;             \
    __attribute__((shared, aligned(Plain::kLdsAlignment))) static char lds[Plain::kLdsBytes]; \
    fa::run_fp8<Plain>((fa::LdsBytes)lds);                                                    \
  }

}  // namespace fa
