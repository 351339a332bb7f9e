// The reference kernel: slow forward attention, for what no other kernel takes.  A wave computes one query of
// one head in three passes over the keys that it sees.
//
//   1. maximum of the scores          lanes are keys
//   2. sum of their exponentials      lanes are keys
//   3. weighted sum of the values     lanes are elements of the head dim
//
// Scores are computed anew in each pass, and everything is fp32.  Any head dim up to kMaxHeadDim, any
// strides, rows aligned to elements only; all offsets have 64 bits.
#pragma once

#include "fa/arch/current.hpp"
#include "fa/arch/device.hpp"
#include "fa/kernel/config.hpp"
#include "fa/kernel/params.hpp"
#include "fa/kernel/sequence.hpp"
#include "fa/mma/unit.hpp"
#include "fa/tile/bias.hpp"
#include "fa/tile/mask.hpp"
#include "fa/tile/philox.hpp"

namespace fa {

// A sum that keeps what rounding loses (Kahan).
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
  static constexpr int kElements = kMaxHeadDim / kWave;  // of the head dim, those of a lane
  static constexpr int kLdsFloats = kMaxHeadDim + kWave;
  static constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

  using Lds = __attribute__((address_space(3))) float*;

  FA_DEVICE static void run(ReferenceArguments arguments, Lds lds) {
    const Sequence found = fa::sequence(fwd_of(arguments), __builtin_amdgcn_workgroup_id_z());
    const Sequence sequence{uniform(found.q_first), uniform(found.seqlen_q), uniform(found.k_first),
                            uniform(found.seqlen_k)};
    for (int row = __builtin_amdgcn_workgroup_id_x(); row < sequence.seqlen_q; row += arguments->blocks) {
      Reference(arguments, sequence, row, lds).attend();
    }
  }

 private:
  const ReferenceArguments arguments;
  const FwdParams& params;
  const int head_dim;
  const Sequence sequence;
  const int row, batch, head, lane;
  const Visibility visible;
  const Lds lds, q, weights;

  FA_DEVICE Reference(ReferenceArguments arguments, const Sequence& sequence, int row, Lds lds)
      : arguments(arguments),
        params(fwd_of(arguments)),
        head_dim(arguments->head_dim),
        sequence(sequence),
        row(row),
        batch(__builtin_amdgcn_workgroup_id_z()),
        head(__builtin_amdgcn_workgroup_id_y()),
        lane(__builtin_amdgcn_workitem_id_x()),
        visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right},
        lds(lds),
        q(lds),
        weights(lds + kMaxHeadDim) {}

  FA_DEVICE static const FwdParams& fwd_of(ReferenceArguments arguments) {
    return ((const ReferenceParams*)arguments)->fwd;
  }

  // The same with its arguments behind a pointer that the compiler cannot recognise: all passes together need
  // more of them than there are scalar registers.
  FA_DEVICE Reference again() const {
    ReferenceArguments same = arguments;
    asm volatile("" : "+s"(same));
    return {same, sequence, row, lds};
  }

  FA_DEVICE void attend() const {
    again().read_query();
    const float highest = again().maximum();
    const float sum = again().sum_of_exponentials(highest);
    again().write_lse(highest, sum);
    again().write_out(highest, sum);
  }

  FA_DEVICE void read_query() const {
    const uint16_t* from = static_cast<const uint16_t*>(params.q) + batch_offset_q(params.q_batch) +
                           head * params.q_head + (sequence.q_first + int64_t{row}) * params.q_row;
    wave_barrier();  // the row before this one has been read
#pragma clang loop unroll(disable)
    for (int d = lane; d < head_dim; d += kWave) q[d] = number(from[d]);
    wave_barrier();
  }

  FA_DEVICE float maximum() const {
    float highest = -__builtin_inff();
    for (int key = visible.begin(row) + lane; key < visible.end(row); key += kWave)
      highest = __builtin_fmaxf(highest, score(key));
    highest = over_lanes(highest, [](float a, float b) { return __builtin_fmaxf(a, b); });
    // Where all are -inf, their exponentials must be 0 and not NaN.
    return highest == -__builtin_inff() ? 0 : highest;
  }

  FA_DEVICE float sum_of_exponentials(float highest) const {
    ExactSum sum;
    for (int key = visible.begin(row) + lane; key < visible.end(row); key += kWave)
      sum.add(exponential(key, highest));
    return over_lanes(sum.value, [](float a, float b) { return a + b; });
  }

  FA_DEVICE void write_lse(float highest, float sum) const {
    if (lane != 0) return;
    const float lse = sum > 0 ? highest + __builtin_amdgcn_logf(sum) * kLn2 : __builtin_inff();
    params.lse[batch_offset_q(params.lse_batch) + head * params.lse_head + sequence.q_first + row] = lse;
  }

  FA_DEVICE void write_out(float highest, float sum) const {
    ExactSum total[kElements];
    for (int begin = visible.begin(row); begin < visible.end(row); begin += kWave)
      add_values(total, highest, begin);
    const float kept = params.dropout_below == 0 ? 1 : params.dropout_scale;
    uint16_t* to = static_cast<uint16_t*>(params.out) + batch_offset_q(params.o_batch) +
                   head * params.o_head + (sequence.q_first + int64_t{row}) * params.o_row;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int d = lane + i * kWave;
      if (d < head_dim) to[d] = element(sum == 0 ? 0 : total[i].value / sum * kept);
    }
  }

  // Adds the values of kWave keys from `begin` on, each multiplied by its weight.
  FA_DEVICE void add_values(ExactSum* total, float highest, int begin) const {
    const int left = visible.end(row) - begin, count = left < kWave ? left : kWave;
    wave_barrier();  // the weights before these have been read
    if (lane < count) weights[lane] = weight(begin + lane, highest);
    wave_barrier();
    float part[kElements] = {};
    for (int i = 0; i < count; ++i) {
      const uint16_t* value = row_of(params.v, params.v_batch, params.v_head, params.v_row, begin + i);
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const int d = lane + e * kWave;
        if (d < head_dim) part[e] = __builtin_fmaf(weights[i], number(value[d]), part[e]);
      }
    }
#pragma unroll
    for (int e = 0; e < kElements; ++e) total[e].add(part[e]);
  }

  FA_DEVICE float weight(int key, float highest) const {
    return dropped(key) ? 0 : exponential(key, highest);
  }

  FA_DEVICE float exponential(int key, float highest) const {
    return __builtin_amdgcn_exp2f((score(key) - highest) * kLog2e);
  }

  FA_DEVICE float score(int key) const {
    const uint16_t* k = row_of(params.k, params.k_batch, params.k_head, params.k_row, key);
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

  // The row of k or v that is the sequence's key `key`.
  FA_DEVICE const uint16_t* row_of(const void* base, int64_t batch_stride, int64_t head_stride,
                                   int64_t row_stride, int key) const {
    const int group = params.nheads / params.nheads_k;
    const uint16_t* heads = static_cast<const uint16_t*>(base) + head / group * head_stride;
    if (params.block_table != nullptr) {
      const int64_t page = page_of(key / params.page);
      return heads + page * batch_stride + key % params.page * row_stride;
    }
    const int64_t place = params.cu_seqlens_k != nullptr ? 0 : place_in_cache(params, batch);
    return heads + place * batch_stride + (int64_t{sequence.k_first} + key) * row_stride;
  }

  // Pages beyond the last are read as the last.
  FA_DEVICE int64_t page_of(int index) const {
    const unsigned last = static_cast<unsigned>(params.num_pages - 1);
    const unsigned found = static_cast<unsigned>(params.block_table[batch * params.table_batch + index]);
    return found < last ? found : last;
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
