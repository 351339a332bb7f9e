// The kernel of the gradients of K and V with a mask or bias: the separate kernel's plain loop, with
//
//   a step before P is recomputed    dkdv/key_mask.hpp, and dkdv/mask_product.hpp in the staggered loop
//   late dropout                     parts/late_dropout.hpp
//   dense sequences, and rows without visible keys or with scores too low for fp32: no gradients
#pragma once

#include "device/backward/separate.hpp"

namespace fa {

template <Gfx kGfx, DType kDType, int kHeadDim>
struct Masked : LoopOf<DkDvShape<Op::bwd_dkdv_masked, kGfx, kDType, kHeadDim>> {
  static constexpr bool kMasked = true, kShortOfScalars = true;
};

template <Gfx kGfx, DType kDType, int kHeadDim>
using MaskedBlock = DkDvBlock<Masked<kGfx, kDType, kHeadDim>>;

// Defines the kernel `name`.
#define FA_DKDV_MASKED(name, dtype, head_dim)                                         \
  FA_KERNEL(dkdv, bwd_dkdv_masked, dtype, head_dim)                                   \
  name(const fa::MaskedBwdParams) {                                                   \
    using B = fa::MaskedBlock<fa::kCurrentGfx, dtype, head_dim>;                      \
    __attribute__((shared, aligned(B::kLdsAlignment))) static char lds[B::kLdsBytes]; \
    B::template run<B>(fa::backward_arguments(), (fa::LdsBytes)lds);                  \
  }

}  // namespace fa
