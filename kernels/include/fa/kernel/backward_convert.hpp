// dq from the sums that the fused pass leaves (backward_fused.hpp), scaled and in its own layout and type.
#pragma once

#include "fa/arch/current.hpp"
#include "fa/kernel/backward_block.hpp"
#include "fa/tile/score_tile.hpp"

namespace fa {

template <Gfx kGfx, DType kDType>
struct Convert {
  using Layout = UnitOf<kGfx, kDType>;
  static constexpr int kWidth = 8;  // elements of a row that a thread has
  static_assert(kConvertRows % kSumRows == 0 && kSumRows % Layout::kM == 0, "whole blocks of whole tiles");

  FA_DEVICE static void run(const BwdParams& params) {
    const int batch = __builtin_amdgcn_workgroup_id_z(), head = __builtin_amdgcn_workgroup_id_y();
    const int thread = __builtin_amdgcn_workitem_id_x();
    const Sequence sequence = fa::sequence(params, batch);
    const Visibility visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right};
    const int first = __builtin_amdgcn_workgroup_id_x() * kConvertRows;
    const int units = uniform(params.head_dim / kWidth);
    int bits = 2;  // of the number of lanes that share a row
    while (1 << bits < units) ++bits;
    const int unit = thread & ((1 << bits) - 1), each = uniform(kConvertThreads >> bits);
    if (unit >= units) return;
    // Blocks are as long as so many rows of head_dim elements.
    const int64_t block =
        head * params.dq_blocks + first_sum_block(params, batch, sequence.q_first) + first / kSumRows;
    const float factor = params.scale * kCutGain<kDType>;  // as that of dk in backward_dkdv.hpp
    const float* const sums = params.dq_sums + block * kSumRows * params.head_dim;
    uint16_t* const to = static_cast<uint16_t*>(params.dq.data) +
                         offset_of(params.dq, params.cu_seqlens_q != nullptr, batch, head, sequence.q_first) +
                         first * params.dq.row + unit * kWidth;
    for (int row = thread >> bits; row < kConvertRows && first + row < sequence.seqlen_q; row += each) {
      const float* const from = sums + place(row, unit * kWidth, params.head_dim);
      const bool seen = visible.begin(first + row) < visible.end(first + row);
      u32x4 words;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t pair = pack_numbers<kDType>(from[i * 2] * factor, from[i * 2 + 1] * factor);
        words[i] = seen ? pair : 0;
      }
      *reinterpret_cast<u32x4*>(to + row * params.dq.row) = words;
    }
  }

 private:
  // Where the sums of element `d` of a row are.
  FA_DEVICE static int place(int row, int d, int head_dim) {
    constexpr int kM = Layout::kM, kN = Layout::kN;
    const int step = row / kM * kM * head_dim + d / kN * (kM * kN);
    return step + Layout::c_place(score_row(row % kM)) * kN + d % kN;
  }
};

// Defines the kernel `name`.
#define FA_CONVERT(name, dtype)                                                               \
  extern "C" __attribute__((global))                                                          \
  __attribute__((amdgpu_flat_work_group_size(fa::kConvertThreads, fa::kConvertThreads))) void \
  name(const fa::BwdParams params) {                                                          \
    fa::Convert<fa::kCurrentGfx, dtype>::run(params);                                         \
  }

}  // namespace fa
