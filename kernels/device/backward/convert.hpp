// dq from the sums of the fused pass (fused.hpp), scaled and in dq's layout and type.
#pragma once

#include "device/backward/parts/raised.hpp"
#include "device/backward/parts/rows.hpp"
#include "device/scores/score_tile.hpp"

namespace fa {

template <Gfx kGfx, DType kDType>
struct Convert {
  using Layout = UnitOf<kGfx, kDType>;
  static constexpr int kWidth = 8;       // elements of a row per thread
  static constexpr int kMostAtOnce = 4;  // rows per thread; fewer loads wait for each other
  static constexpr int kUnitBytes = kWidth * 2, kSumBytes = sizeof(float);
  static_assert(kConvertRows % kSumRows == 0 && kSumRows % Layout::kM == 0, "whole blocks of whole tiles");
  template <int kBytes>
  using View = BufferView<kConvertRows, kBytes, traits(kGfx).buffer_word3>;

  FA_DEVICE static void run(BwdArguments arguments) {
    const BwdParams params = loaded(arguments);
    const RowsOfGroup group(params, kConvertRows);
    if (group.left <= 0) return;
    const int units = static_cast<int>(static_cast<unsigned>(params.head_dim) / kWidth);
    // A block is as long as this many rows of head_dim elements.
    const uint64_t block =
        static_cast<uint64_t>(params.dq_blocks) * static_cast<uint32_t>(group.head) +
        static_cast<uint64_t>(first_sum_block(params, group.batch, group.sequence.q_first)) +
        static_cast<uint32_t>(group.first / kSumRows);
    const float* const numbers = params.dq_sums + block * (kSumRows * static_cast<uint32_t>(params.head_dim));
    // Whole blocks of rows: values of a block beyond the last row are read and ignored.
    const int whole = (group.left + kSumRows - 1) / kSumRows * kSumRows;
    const int row_bytes = units * kWidth * kSumBytes;
    const View<kSumBytes> sums({reinterpret_cast<const char*>(numbers), row_bytes, whole}, 0, row_bytes);
    const View<kUnitBytes> dq(group.rows_of(params.dq), 0, units * kUnitBytes);
    Sequence sequence = group.sequence;
    sequence.seqlen_k = fa::sequence(params, group.batch).seqlen_k;
    const Visibility visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right};
    // Rows that see keys are neighbours.
    const int end = group.left < kConvertRows ? sequence.seqlen_q : group.first + kConvertRows;
    const Rows rows{visible, group.first, seen(visible, group.first) && seen(visible, end - 1)};
    const float factor = params.scale * Raised<kGfx, kDType>::kOfDk;  // as for dk in dkdv/loop.hpp
    constexpr int kLeastLanes = fused_head_dims().least / kWidth,
                  kMostLanes = fused_head_dims().most / kWidth;
    with_lanes_for<kLeastLanes, kMostLanes>(
        units, [&](auto lanes) { convert<decltype(lanes)::kLanes>(rows, sums, dq, units, factor); });
  }

 private:
  FA_DEVICE static BwdParams loaded(BwdArguments arguments) {
    BwdParams params = loaded_here(arguments);
    loaded_together(params.dq.data, params.dq.batch, params.dq.row, params.dq.head);
    loaded_together(params.dq_sums, params.dq_blocks, params.head_dim, params.scale);
    loaded_together(params.seqlen_q, params.seqlen_k, params.rows_q);
    loaded_together(params.window_left, params.window_right);
    loaded_together_constant(params.cu_seqlens_q);
    loaded_together_constant(params.cu_seqlens_k);
    return params;
  }

  struct Rows {
    Visibility visible;
    int first;
    bool all_seen;
  };
  FA_DEVICE static bool seen(const Visibility& visible, int row) {
    return visible.begin(row) < visible.end(row);
  }

  // kLanes share a row.
  template <int kLanes>
  FA_DEVICE static void convert(const Rows& rows, const View<kSumBytes>& sums, const View<kUnitBytes>& dq,
                                int units, float factor) {
    constexpr int kEach = kConvertThreads / kLanes, kRows = kConvertRows / kEach;  // per thread
    constexpr int kAtOnce = kRows < kMostAtOnce ? kRows : kMostAtOnce;
    static_assert(kRows % kAtOnce == 0, "all threads have as many rows");
    const int thread = __builtin_amdgcn_workitem_id_x();
    const int unit = thread % kLanes, row = thread / kLanes;
    if (unit >= units) return;
    const int head_dim = units * kWidth;
    // Rows of one thread differ in bits that are 0 in its first row, and places are made of single bits.
    const int from = place(row, unit * kWidth, head_dim) * kSumBytes;
    const auto further = [&](int i) { return place(i * kEach, 0, head_dim) * kSumBytes; };
    int to = static_cast<int>(row * dq.row_bytes + unit * kUnitBytes);
#pragma unroll 1
    for (int i = 0; i < kRows; i += kAtOnce) {
      f32x4 numbers[kAtOnce][2];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        numbers[j][0] = sums.template read_at<f32x4>(from + further(i + j));
        numbers[j][1] = sums.template read_at<f32x4>(from + further(i + j) + 16);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        u32x4 words;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const f32x4& held = numbers[j][word / 2];
          words[word] = pack_numbers<kDType>(held[word % 2 * 2] * factor, held[word % 2 * 2 + 1] * factor);
        }
        if (!rows.all_seen && !seen(rows.visible, rows.first + row + (i + j) * kEach)) words = u32x4{};
        dq.write_at(to, words);
        to += static_cast<int>(kEach * dq.row_bytes);
      }
    }
  }

  // Offset of the sums of element `d` of a row.
  FA_DEVICE static int place(int row, int d, int head_dim) {
    constexpr int kM = Layout::kM, kN = Layout::kN;
    const int step = row / kM * kM * head_dim + d / kN * (kM * kN);
    constexpr bool kTurned = traits(kGfx).transposed_reads;
    const int in_result = kTurned ? Layout::slot_of_row(row % kM, kM) : score_row(row % kM);
    return step + Layout::c_place(in_result) * kN + d % kN;
  }
};

// Defines the kernel `name`.
#define FA_CONVERT(name, dtype)                                                               \
  extern "C" __attribute__((global))                                                          \
  __attribute__((amdgpu_flat_work_group_size(fa::kConvertThreads, fa::kConvertThreads))) void \
  name(const fa::BwdParams) {                                                                 \
    fa::Convert<fa::kCurrentGfx, dtype>::run(fa::backward_arguments());                       \
  }

}  // namespace fa
