// The reference kernel: slow forward attention for calls that no other kernel accepts. A wave computes one
// query of one head in three passes over its visible keys.
//
//   1. maximum of the scores          lanes are keys
//   2. sum of their exponentials      lanes are keys
//   3. weighted sum of the values     lanes are elements of the head dim
//
// Scores are recomputed in each pass, and everything is fp32. It accepts any head dim up to kMaxHeadDim and
// any strides. Rows are aligned to elements only. All offsets have 64 bits.
#pragma once

#include "device/arch/current.hpp"
#include "device/arch/device.hpp"
#include "device/call/config.hpp"
#include "device/call/params.hpp"
#include "device/call/sequence.hpp"
#include "device/masks/bias.hpp"
#include "device/masks/mask.hpp"
#include "device/mma/unit.hpp"
#include "device/scores/philox.hpp"
#include "device/scores/sink.hpp"

namespace fa {

// A compensated sum (Kahan).
struct ExactSum {
  float value = 0, rest = 0;

  FA_DEVICE void add(float term) {
    const float corrected = term - rest;
    const float next = value + corrected;
    const float lost = next - value - corrected;
    rest = lost == lost ? lost : 0;  // not a number once the sum is infinite
    value = next;
  }
};

// The kernel's arguments in the constant address space.
using ReferenceArguments = __attribute__((address_space(4))) const ReferenceParams*;

template <Gfx kGfx, DType kDType>
struct Reference {
  static constexpr int kWave = traits(kGfx).wave;
  static constexpr int kElements = kMaxHeadDim / kWave;  // a lane's elements of the head dim
  static constexpr int kLdsFloats = kMaxHeadDim + kWave;
  static constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

  using Lds = __attribute__((address_space(3))) float*;

  FA_DEVICE static void run(ReferenceArguments arguments, Lds lds) {
    const Sequence found = fa::sequence(fwd_of(arguments), __builtin_amdgcn_workgroup_id_z());
    const Sequence sequence{uniform(found.q_first), uniform(found.seqlen_q), uniform(found.k_first),
                            uniform(found.seqlen_k)};
    const FwdParams& params = fwd_of(arguments);
    const unsigned group = static_cast<unsigned>(params.nheads) / static_cast<unsigned>(params.nheads_k);
    const int head_k = static_cast<int>(__builtin_amdgcn_workgroup_id_y() / group);
    for (int row = __builtin_amdgcn_workgroup_id_x(); row < sequence.seqlen_q; row += arguments->blocks) {
      Reference(arguments, sequence, row, uniform(head_k), lds).attend();
    }
  }

 private:
  const ReferenceArguments arguments;
  const FwdParams& params;
  const int head_dim;
  const Sequence sequence;
  const int row, batch, head, head_k, lane;
  const Visibility visible;
  const Lds lds, q, weights;

  struct Place {
    int batch, row;  // batch: or page
  };
  enum Pass { kMaximum, kSum, kValues };
  struct State {
    float highest = -__builtin_inff(), sum = 0;
    ExactSum total[kElements];
  };

  FA_DEVICE Reference(ReferenceArguments arguments, const Sequence& sequence, int row, int head_k, Lds lds)
      : arguments(arguments),
        params(fwd_of(arguments)),
        head_dim(arguments->head_dim),
        sequence(sequence),
        row(row),
        batch(__builtin_amdgcn_workgroup_id_z()),
        head(__builtin_amdgcn_workgroup_id_y()),
        head_k(head_k),
        lane(__builtin_amdgcn_workitem_id_x()),
        visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right},
        lds(lds),
        q(lds),
        weights(lds + kMaxHeadDim) {}

  FA_DEVICE static const FwdParams& fwd_of(ReferenceArguments arguments) {
    return ((const ReferenceParams*)arguments)->fwd;
  }

  // A copy with its arguments behind a pointer that the compiler cannot recognise: all passes together need
  // more of them than there are scalar registers.
  FA_DEVICE Reference again() const {
    ReferenceArguments same = arguments;
    asm volatile("" : "+s"(same));
    return {same, sequence, row, head_k, lds};
  }

  FA_DEVICE void attend() const {
    again().read_query();
    State state;
    // A loop, for a single copy of the code for a score. Unrolled, it would be most of the kernel.
#pragma clang loop unroll(disable)
    for (int pass = kMaximum; pass <= kValues; ++pass) again().add_keys(here_uniform(pass), state);
    again().write_lse(state);
    again().write_out(state);
  }

  FA_DEVICE void read_query() const {
    const uint16_t* from = static_cast<const uint16_t*>(params.q) + batch_offset_q(params.q_batch) +
                           head * params.q_head + (sequence.q_first + int64_t{row}) * params.q_row;
    wave_barrier();  // the previous row has been read
#pragma clang loop unroll(disable)
    for (int d = lane; d < head_dim; d += kWave) q[d] = number(from[d]);
    wave_barrier();
  }

  FA_DEVICE void add_keys(int pass, State& state) const {
    ExactSum sum;
#pragma clang loop unroll(disable)
    for (int begin = visible.begin(row); begin < visible.end(row); begin += kWave) {
      const int left = visible.end(row) - begin, count = here_uniform(left < kWave ? left : kWave);
      // Opaque, or the compiler makes a loop for each pass.
      const int now = here_uniform(pass);
      if (now == kValues) wave_barrier();  // the previous weights have been read
      Place place{};
      if (lane < count) {
        place = place_of(begin + lane);
        const float found = score(begin + lane, place);
        if (now == kMaximum) {
          state.highest = __builtin_fmaxf(state.highest, found);
        } else {
          const float weight = __builtin_amdgcn_exp2f((found - state.highest) * kLog2e);
          if (now == kSum) {
            sum.add(weight);
          } else {
            weights[lane] = dropped(begin + lane) ? 0 : weight;
          }
        }
      }
      if (now == kValues) {
        wave_barrier();
        add_values(state.total, place, count);
      }
    }
    if (pass == kMaximum) {
      state.highest = over_lanes(state.highest, [](float a, float b) { return __builtin_fmaxf(a, b); });
      // If all are -inf, their exponentials must be 0 instead of NaN.
      if (state.highest == -__builtin_inff()) state.highest = 0;
    } else if (pass == kSum) {
      state.sum = over_lanes(sum.value, [](float a, float b) { return a + b; });
      state.sum = sum_with_sink(state.sum, state.highest * kLog2e, sink_of(params.sink, head));
    }
  }

  FA_DEVICE void write_lse(const State& state) const {
    if (lane != 0) return;
    const float lse =
        state.sum > 0 ? state.highest + __builtin_amdgcn_logf(state.sum) * kLn2 : __builtin_inff();
    params.lse[batch_offset_q(params.lse_batch) + head * params.lse_head + sequence.q_first + row] =
        lse_with_sink(lse, sink_of(params.sink, head));
  }

  FA_DEVICE void write_out(const State& state) const {
    const float kept = params.dropout_below == 0 ? 1 : params.dropout_scale;
    const float factor = kept / state.sum;
    uint16_t* to = static_cast<uint16_t*>(params.out) + batch_offset_q(params.o_batch) +
                   head * params.o_head + (sequence.q_first + int64_t{row}) * params.o_row;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int d = lane + i * kWave;
      if (d < head_dim) to[d] = element(state.sum == 0 ? 0 : state.total[i].value * factor);
    }
  }

  // Adds the values of `count` keys, each multiplied by its weight. Each lane has the place of one.
  FA_DEVICE void add_values(ExactSum* total, Place places, int count) const {
    float part[kElements] = {};
    unsigned bytes[kElements];  // into a row
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      // Beyond the last element: the last again, so lanes do not wait for each other. That sum is discarded.
      const int d = lane + e * kWave, last = head_dim - 1;
      bytes[e] = (d < last ? d : last) * sizeof(uint16_t);
    }
#pragma clang loop unroll(disable)
    for (int i = 0; i < count; ++i) {
      const Place place{__builtin_amdgcn_readlane(places.batch, i), __builtin_amdgcn_readlane(places.row, i)};
      const auto* value =
          reinterpret_cast<const char*>(row_of(params.v, params.v_batch, params.v_head, params.v_row, place));
      const float weight = weights[i];
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        bytes[e] = here(bytes[e]);  // opaque: otherwise addresses would be kept in 64 bits
        const uint16_t own = *reinterpret_cast<const uint16_t*>(value + bytes[e]);
        part[e] = __builtin_fmaf(weight, number(own), part[e]);
      }
    }
#pragma unroll
    for (int e = 0; e < kElements; ++e) total[e].add(part[e]);
  }

  FA_DEVICE float score(int key, Place place) const {
    const uint16_t* k = row_of(params.k, params.k_batch, params.k_head, params.k_row, place);
    float product = 0;
    for (int d = 0; d < head_dim; ++d) product = __builtin_fmaf(q[d], number(k[d]), product);
    float score = product * params.scale;
    if (params.softcap != 0) score = params.softcap * tanh_of(score / params.softcap);
    if (params.alibi_slopes == nullptr) return score;
    const float distance = static_cast<float>(key - visible.diagonal(row));
    return score - params.alibi_slopes[batch * params.alibi_batch + head] * __builtin_fabsf(distance);
  }

  FA_DEVICE bool dropped(int key) const {
    if (params.dropout_below == 0) return false;
    const PhiloxKey state{static_cast<uint32_t>(params.rng_state[0]),
                          static_cast<uint32_t>(params.rng_state[1])};
    const PhiloxWords words = dropout_words(state, batch, head, row, key / 4);
    const uint32_t low = key & 1 ? words.word[1] : words.word[0];
    const uint32_t high = key & 1 ? words.word[3] : words.word[2];
    return (key & 2 ? high : low) < params.dropout_below;
  }

  // Place of the sequence's key `key` in k and v.
  FA_DEVICE Place place_of(int key) const {
    if (params.block_table != nullptr) {
      const unsigned size = static_cast<unsigned>(params.page), index = static_cast<unsigned>(key) / size;
      return {page_of(index), key - static_cast<int>(index * size)};
    }
    const int batch_k = params.cu_seqlens_k != nullptr ? 0 : place_in_cache(params, batch);
    return {batch_k, sequence.k_first + key};
  }

  // Pages beyond the last are read as the last.
  FA_DEVICE int page_of(unsigned index) const {
    const unsigned last = static_cast<unsigned>(params.num_pages - 1);
    const unsigned found = static_cast<unsigned>(params.block_table[batch * params.table_batch + index]);
    return static_cast<int>(found < last ? found : last);
  }

  // A row of k or v.
  FA_DEVICE const uint16_t* row_of(const void* base, int64_t batch_stride, int64_t head_stride,
                                   int64_t row_stride, Place place) const {
    return static_cast<const uint16_t*>(base) + head_k * head_stride + place.batch * batch_stride +
           place.row * row_stride;
  }

  FA_DEVICE int64_t batch_offset_q(int64_t batch_stride) const {
    return params.cu_seqlens_q == nullptr ? batch * batch_stride : 0;
  }

  template <class Combine>
  FA_DEVICE float over_lanes(float value, Combine combine) const {
    return across_lanes<kWave - 1>(value, lane, combine);
  }

  FA_DEVICE static float number(uint16_t bits) {
    if constexpr (kDType == DType::fp16) {
      return static_cast<float>(__builtin_bit_cast(_Float16, bits));
    } else {
      return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
    }
  }

  FA_DEVICE static uint16_t element(float value) { return static_cast<uint16_t>(pack<kDType>(value, 0)); }
};

// Defines the kernel `name`.
#define FA_REFERENCE(name, dtype)                                                                      \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(                       \
      fa::reference_tile(fa::kCurrentGfx).threads, fa::reference_tile(fa::kCurrentGfx).threads))) void \
  name(const fa::ReferenceParams) {                                                                    \
    using Kernel = fa::Reference<fa::kCurrentGfx, dtype>;                                              \
    __attribute__((shared)) static float lds[Kernel::kLdsFloats];                                      \
    Kernel::run((fa::ReferenceArguments)__builtin_amdgcn_kernarg_segment_ptr(), (Kernel::Lds)lds);     \
  }

}  // namespace fa
