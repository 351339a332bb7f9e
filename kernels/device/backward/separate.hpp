// The kernel of the gradients of K and V: see dkdv/loop.hpp, and dkdv/ping_pong.hpp and
// dkdv/column_blocks.hpp for its other loops.
#pragma once

#include "device/backward/dkdv/column_blocks.hpp"
#include "device/backward/dkdv/staggered.hpp"

namespace fa {

template <class B>
FA_DEVICE void run_dkdv(BwdArguments arguments, LdsBytes lds) {
  if constexpr (B::kStaggered) {
    run_staggered<B>(arguments, lds);
  } else if constexpr (B::kPingPong) {
    run_ping_pong<B>(arguments, lds);
  } else if constexpr (B::kByBlocks) {
    run_column_blocks<B>(arguments, lds);
  } else {
    const BwdParams& params = loaded_here(arguments);
    const Sequence found = sequence_of<B>(params, __builtin_amdgcn_workgroup_id_z());
    const int first_key = __builtin_amdgcn_workgroup_id_x() * B::kTile.block_n;
    if (first_key >= found.seqlen_k) return;
    B block(arguments, params, found, lds);
    const int wave_key = first_key + block.pair * B::Unit::kN;
    const typename B::Tiles tiles = block.tiles_of(first_key, wave_key);
    typename B::Sums sums = {};
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) B::Unit::settle(sums[step]);
    if (tiles.begin < tiles.end) {
      const typename B::Own own = block.load_own(wave_key);
      const int group = uniform(params.nheads / params.nheads_k);
      for (int i = 0; i < group; ++i) {
        const int head_q = block.head_k * group + i;
        if constexpr (B::kEarly) {
          add_head_early(block, head_q, wave_key, tiles, own, sums);
        } else {
          add_head(block, head_q, wave_key, tiles, own, sums);
        }
      }
    }
    store(block, wave_key, sums);
  }
}

// Defines the kernel `name`.
#define FA_DKDV(name, dtype, head_dim)                                                                      \
  FA_KERNEL(dkdv, bwd_dkdv, dtype, head_dim)                                                                \
  name(const fa::BwdParams) {                                                                               \
    const fa::BwdArguments arguments = fa::backward_arguments();                                            \
    using Plain = fa::DkDvBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::bwd_dkdv, false>;                 \
    using Featured = fa::DkDvBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::bwd_dkdv, true>;               \
    __attribute__((                                                                                         \
        shared,                                                                                             \
        aligned(Plain::kLdsAlignment))) static char lds[fa::larger(Plain::kLdsBytes, Featured::kLdsBytes)]; \
    constexpr bool kAtOnce = Plain::kByBlocks || Plain::kStaggered;                                         \
    if (fa::is_featured<kAtOnce>(arguments)) {                                                              \
      fa::run_dkdv<Featured>(arguments, (fa::LdsBytes)lds);                                                 \
      asm volatile("; keeps the ends of the two apart, which must not share registers");                    \
    } else {                                                                                                \
      fa::run_dkdv<Plain>(arguments, (fa::LdsBytes)lds);                                                    \
    }                                                                                                       \
  }

// The kernel with a mask or bias: the plain loop with one more step before P is recomputed.
#define FA_DKDV_MASKED(name, dtype, head_dim)                                                             \
  FA_KERNEL(dkdv, bwd_dkdv_masked, dtype, head_dim)                                                       \
  name(const fa::MaskedBwdParams) {                                                                       \
    using Masked = fa::DkDvBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::bwd_dkdv_masked, false, false, \
                                 head_dim, true>;                                                         \
    __attribute__((shared, aligned(Masked::kLdsAlignment))) static char lds[Masked::kLdsBytes];           \
    fa::run_dkdv<Masked>(fa::backward_arguments(), (fa::LdsBytes)lds);                                    \
  }

}  // namespace fa
