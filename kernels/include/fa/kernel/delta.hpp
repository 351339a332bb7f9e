// delta = sum over head_dim of dout * out, in fp32, one number for each query and head.
#pragma once

#include "fa/arch/current.hpp"
#include "fa/kernel/backward_block.hpp"

namespace fa {

template <Gfx kGfx, DType kDType>
struct Delta {
  static constexpr int kWidth = 8;  // elements of a row that a thread has
  static constexpr int kMostLanes = kMaxHeadDim / kWidth;
  static_assert(kMostLanes <= traits(kGfx).wave, "a row's lanes are of one wave");

  FA_DEVICE static void run(const BwdParams& params) {
    const int batch = __builtin_amdgcn_workgroup_id_z(), head = __builtin_amdgcn_workgroup_id_y();
    const int thread = __builtin_amdgcn_workitem_id_x();
    const Sequence sequence = fa::sequence(params, batch);
    const bool ragged = params.cu_seqlens_q != nullptr;
    const int first = __builtin_amdgcn_workgroup_id_x() * kDeltaRows;
    const int units = uniform(params.head_dim / kWidth);
    int lanes = 4;
    while (lanes < units) lanes *= 2;
    const int unit = thread & (lanes - 1), each = uniform(kDeltaThreads / lanes);
    float* const to =
        params.delta + (ragged ? 0 : batch) * params.lse_batch + head * params.lse_head + sequence.q_first;
    for (int row = first + thread / lanes; row < first + kDeltaRows; row += each) {
      const bool inside = row < sequence.seqlen_q;
      float sum = 0;
      if (inside && unit < units) {
        sum = product(unit_of(params.dout, ragged, batch, head, sequence.q_first + row, unit),
                      unit_of(params.out, ragged, batch, head, sequence.q_first + row, unit));
      }
      sum = joined(sum, lanes);
      if (inside && unit == 0) to[row] = sum;
    }
  }

 private:
  FA_DEVICE static u32x4 unit_of(const BwdInput& tensor, bool ragged, int batch, int head, int row,
                                 int unit) {
    const uint16_t* from =
        static_cast<const uint16_t*>(tensor.data) + offset_of(tensor, ragged, batch, head, row);
    return *reinterpret_cast<const u32x4*>(from + unit * kWidth);
  }

  FA_DEVICE static float product(u32x4 a, u32x4 b) {
    float sum = 0;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const uint32_t one = a[word], other = b[word];
      sum = __builtin_fmaf(low(one), low(other), sum);
      sum = __builtin_fmaf(high(one), high(other), sum);
    }
    return sum;
  }

  FA_DEVICE static float low(uint32_t pair) {
    if constexpr (kDType == DType::fp16) return static_cast<float>(__builtin_bit_cast(f16x2, pair).x);
    return __builtin_bit_cast(float, pair << 16);
  }
  FA_DEVICE static float high(uint32_t pair) {
    if constexpr (kDType == DType::fp16) return static_cast<float>(__builtin_bit_cast(f16x2, pair).y);
    return __builtin_bit_cast(float, pair & 0xffff0000u);
  }

  // The sum over the row's lanes: a power of two of them, from 4 to 32.
  FA_DEVICE static float joined(float sum, int lanes) {
    sum += lane_xor<1>(sum, 0);
    sum += lane_xor<2>(sum, 0);
    if (lanes > 4) sum += lane_xor<4>(sum, 0);
    if (lanes > 8) sum += lane_xor<8>(sum, 0);
    if (lanes > 16) sum += lane_xor<16>(sum, 0);
    return sum;
  }
};

// Defines the kernel `name`.
#define FA_DELTA(name, dtype)                                                             \
  extern "C" __attribute__((global))                                                      \
  __attribute__((amdgpu_flat_work_group_size(fa::kDeltaThreads, fa::kDeltaThreads))) void \
  name(const fa::BwdParams params) {                                                      \
    fa::Delta<fa::kCurrentGfx, dtype>::run(params);                                       \
  }

}  // namespace fa
