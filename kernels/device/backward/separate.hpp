// The kernel of the gradients of K and V: the loop of a row of tiles.toml, unchanged.
#pragma once

#include "device/backward/dkdv/column_blocks.hpp"
#include "device/backward/dkdv/staggered.hpp"

namespace fa {

template <class Shape>
using LoopOf =
    Choice<Shape::kConfig.staggered && !Shape::kFeatured, StaggeredLoop<Shape>,
           Choice<Shape::kConfig.ping_pong, PingPongLoop<Shape>,
                  Choice<(Shape::kConfig.column_blocks > 0), ColumnBlocksLoop<Shape>, BasicLoop<Shape>>>>;

template <Gfx kGfx, DType kDType, int kHeadDim, bool kFeatured>
using SeparateBlock = DkDvBlock<LoopOf<DkDvShape<Op::bwd_dkdv, kGfx, kDType, kHeadDim, kFeatured>>>;

// Defines the kernel `name`.
#define FA_DKDV(name, dtype, head_dim)                                                                      \
  FA_KERNEL(dkdv, bwd_dkdv, dtype, head_dim)                                                                \
  name(const fa::BwdParams) {                                                                               \
    using Plain = fa::SeparateBlock<fa::kCurrentGfx, dtype, head_dim, false>;                               \
    using Featured = fa::SeparateBlock<fa::kCurrentGfx, dtype, head_dim, true>;                             \
    __attribute__((                                                                                         \
        shared,                                                                                             \
        aligned(Plain::kLdsAlignment))) static char lds[fa::larger(Plain::kLdsBytes, Featured::kLdsBytes)]; \
    const fa::BwdArguments arguments = fa::backward_arguments();                                            \
    if (fa::is_featured<Plain::kAsksAtOnce>(arguments)) {                                                   \
      Featured::template run<Featured>(arguments, (fa::LdsBytes)lds);                                       \
      asm volatile("; keeps the ends of the two apart, which must not share registers");                    \
    } else {                                                                                                \
      Plain::template run<Plain>(arguments, (fa::LdsBytes)lds);                                             \
    }                                                                                                       \
  }

}  // namespace fa
