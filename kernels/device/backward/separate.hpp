// The kernel of the gradients of K and V: the loop of a row of tiles.toml, unchanged.
#pragma once

#include "device/backward/dkdv/column_blocks.hpp"
#include "device/backward/dkdv/staggered.hpp"

namespace fa {

// Runs the loop of dkdv/staggered.hpp for the kind of the mask, if any.
template <class Shape>
struct StaggeredLoop : StaggeredTiles<Shape> {
  static constexpr bool kTakesParams = true;

  template <class B>
  FA_DEVICE static void run(BwdArguments arguments, const BwdParams& params, LdsBytes lds) {
    run_staggered<B, NoMaskAhead<B>>(arguments, params, lds);
  }
  template <class B>
  FA_DEVICE static void run(BwdArguments arguments, LdsBytes lds) {
    if constexpr (!B::kMasked) {
      run<B>(arguments, loaded_at_once(arguments), lds);
    } else if (static_cast<MaskKind>(uniform(masked_here(arguments).mask_kind)) == MaskKind::fp32) {
      run_staggered<B, Fp32Mask<B>>(arguments, loaded_at_once(arguments), lds);
      asm volatile("; keeps the ends of the two apart, which must not share registers");
    } else {
      run_staggered<B, TurnedMask<B>>(arguments, loaded_at_once(arguments), lds);
    }
  }
};

template <class Shape>
using LoopOf =
    Choice<Shape::kConfig.staggered && !Shape::kFeatured, StaggeredLoop<Shape>,
           Choice<Shape::kConfig.ping_pong, PingPongLoop<Shape>,
                  Choice<(Shape::kConfig.column_blocks > 0), ColumnBlocksLoop<Shape>, BasicLoop<Shape>>>>;

template <Gfx kGfx, DType kDType, int kHeadDim, bool kFeatured>
using SeparateBlock = DkDvBlock<LoopOf<DkDvShape<Op::bwd_dkdv, kGfx, kDType, kHeadDim, kFeatured>>>;

// The launch's loop.
template <class Plain, class Featured>
FA_DEVICE void run_either(BwdArguments arguments, LdsBytes lds) {
  [[maybe_unused]] BwdParams params;
  bool is_other;
  if constexpr (Plain::kTakesParams) {
    params = loaded_at_once<true>(arguments);
    is_other = featured(params);
  } else {
    is_other = is_featured<Plain::kAsksAtOnce>(arguments);
  }
  if (is_other) {
    Featured::template run<Featured>(arguments, lds);
    asm volatile("; keeps the ends of the two apart, which must not share registers");
  } else if constexpr (Plain::kTakesParams) {
    Plain::template run<Plain>(arguments, params, lds);
  } else {
    Plain::template run<Plain>(arguments, lds);
  }
}

// Defines the kernel `name`.
#define FA_DKDV(name, dtype, head_dim)                                                                      \
  FA_KERNEL(dkdv, bwd_dkdv, dtype, head_dim)                                                                \
  name(const fa::BwdParams) {                                                                               \
    using Plain = fa::SeparateBlock<fa::kCurrentGfx, dtype, head_dim, false>;                               \
    using Featured = fa::SeparateBlock<fa::kCurrentGfx, dtype, head_dim, true>;                             \
    __attribute__((                                                                                         \
        shared,                                                                                             \
        aligned(Plain::kLdsAlignment))) static char lds[fa::larger(Plain::kLdsBytes, Featured::kLdsBytes)]; \
    fa::run_either<Plain, Featured>(fa::backward_arguments(), (fa::LdsBytes)lds);                           \
  }

}  // namespace fa
