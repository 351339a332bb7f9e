// Before the loop of a forward kernel: places, sequences, zeros, and their versions for a short prologue.
#pragma once

#include "device/call/places.hpp"
#include "device/forward/parts/block.hpp"
#include "device/forward/parts/products.hpp"
#include "device/forward/parts/source.hpp"

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

// The wave's operands of Q. `begun`: its words, with kEarlyQuery.
template <class B, class Coded>
FA_DEVICE typename B::Q load_query(const B& block, int wave_row, typename B::Convert& convert,
                                   [[maybe_unused]] Coded& coded,
                                   [[maybe_unused]] const typename B::Q::Begun& begun = {}) {
  const FwdParams& params = block.params;
  // Scales of int8 keep their sign.
  const QuerySign sign = B::kCounts                ? QuerySign(1)
                         : B::kConfig.scalar_scale ? QuerySign::from_bits(params.scale)
                                                   : QuerySign(coded.scale());
  if constexpr (B::kEarlyQuery && kLone<typename B::Unit>) {
    return typename B::Q(block.k_tile + B::kTilesLds, begun, coded.query, sign, block.lane);
  } else if constexpr (B::kEarlyQuery) {
    typename B::Q query = begun;
    query.held.finish(coded.query, sign);
    return query;
  } else if constexpr (B::kPacked) {
    return typename B::Q(block.k_tile + B::kTilesLds, coded.queries(wave_row), sign, convert, block.lane,
                         block.wave == 0);
  } else if constexpr (B::kConfig.short_prologue) {
    const char* const base = row_at(params.q, params.q_batch, params.q_head, params.q_row, block.batch,
                                    block.head, block.sequence.q_first + wave_row);
    const HeadRows rows{base, static_cast<int64_t>(static_cast<uint32_t>(params.q_row) * 2),
                        block.sequence.seqlen_q - wave_row};
    const auto applied = [&] {
      if constexpr (B::kCounts) {
        return CountSign{params.scale};
      } else if constexpr (B::kFp8 && B::kTraits.fp8 == Fp8::fnuz) {
        return CodeSign{params.scale, convert};
      } else if constexpr (B::kFp8) {
        return ShortSignOf<ByteSign>{params.scale};
      } else {
        return ShortSign{params.scale};
      }
    };
    return typename B::Q(block.wave_lds, typename B::QueryView(rows, 0), applied(), convert, block.lane);
  } else {
    const Choice<B::kFp8, ByteSign, QuerySign> applied(sign);
    return typename B::Q(block.wave_lds, typename B::QueryView(query_rows(block), wave_row), applied, convert,
                         block.lane);
  }
}

}  // namespace fa
