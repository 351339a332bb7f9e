// delta = sum over head_dim of dout * out, in fp32, one number per query and head.
#pragma once

#include "device/backward/parts/rows.hpp"

namespace fa {

template <Gfx kGfx, DType kDType>
struct Delta {
  static constexpr int kWidth = 8;  // elements of a row per thread
  static constexpr int kUnitBytes = kWidth * 2, kNumberBytes = sizeof(float);
  static constexpr int kMostAtOnce = 4;  // rows per thread; fewer loads wait for each other
  static constexpr int kLeastLanes = separate_head_dims().least / kWidth,
                       kMostLanes = separate_head_dims().most / kWidth;
  static_assert(kMostLanes <= traits(kGfx).wave, "a row's lanes are of one wave");
  template <int kBytes>
  using View = BufferView<kDeltaRows, kBytes, traits(kGfx).buffer_word3>;

  FA_DEVICE static void run(BwdArguments arguments) {
    const BwdParams params = loaded(arguments);
    const RowsOfGroup group(params, kDeltaRows);
    if (group.left <= 0) return;
    const int units = static_cast<int>(static_cast<unsigned>(params.head_dim) / kWidth);
    const auto view_of = [&](const BwdInput& tensor) {
      return View<kUnitBytes>(group.rows_of(tensor), 0, units * kUnitBytes);
    };
    const View<kUnitBytes> out = view_of(params.out), dout = view_of(params.dout);
    const float* const numbers = params.delta + group.at(params.lse_batch, params.lse_head);
    const View<kNumberBytes> delta({reinterpret_cast<const char*>(numbers), kNumberBytes, group.left}, 0);
    with_lanes_for<kLeastLanes, kMostLanes>(
        units, [&](auto lanes) { find<decltype(lanes)::kLanes>(out, dout, delta, units); });
  }

 private:
  static constexpr int kBeyond = 1 << 30;  // an offset beyond every tile of delta

  FA_DEVICE static BwdParams loaded(BwdArguments arguments) {
    BwdParams params = loaded_here(arguments);
    loaded_together(params.out.data, params.out.batch, params.out.row, params.out.head);
    loaded_together(params.dout.data, params.dout.batch, params.dout.row, params.dout.head);
    loaded_together(params.delta, params.lse_batch, params.lse_head, params.head_dim);
    loaded_together(params.seqlen_q, params.rows_q);
    loaded_together_constant(params.cu_seqlens_q);
    return params;
  }

  // kLanes share a row.
  template <int kLanes>
  FA_DEVICE static void find(const View<kUnitBytes>& out, const View<kUnitBytes>& dout,
                             const View<kNumberBytes>& delta, int units) {
    constexpr int kEach = kDeltaThreads / kLanes, kRows = kDeltaRows / kEach;  // per thread
    constexpr int kAtOnce = kRows < kMostAtOnce ? kRows : kMostAtOnce;
    static_assert(kRows % kAtOnce == 0, "all threads have as many rows");
    const int thread = __builtin_amdgcn_workitem_id_x();
    // Lanes without a unit of the row read the last one. Lanes without a result store beyond the end.
    const int place = thread % kLanes, row = thread / kLanes;
    const int unit = place < units ? place : units - 1;
    int from_out = static_cast<int>(row * out.row_bytes + unit * kUnitBytes);
    int from_dout = static_cast<int>(row * dout.row_bytes + unit * kUnitBytes);
    const int to = place == 0 ? row * kNumberBytes : kBeyond;
#pragma unroll 1
    for (int i = 0; i < kRows; i += kAtOnce) {
      u32x4 words[kAtOnce][2];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        words[j][0] = out.template read_at<u32x4>(from_out);
        words[j][1] = dout.template read_at<u32x4>(from_dout);
        from_out += static_cast<int>(kEach * out.row_bytes);
        from_dout += static_cast<int>(kEach * dout.row_bytes);
      }
      float sum[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        // Opaque, or two sums are formed in pairs, whose operands have to be converted first.
        sum[j] = here(product(words[j][0], words[j][1]));
        if (place >= units) sum[j] = 0;
      }
      joined<kLanes>(sum);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) delta.write_at(to + (i + j) * kEach * kNumberBytes, sum[j]);
    }
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

  // Sums over the row's lanes.
  template <int kLanes, int kCount>
  FA_DEVICE static void joined(float (&sums)[kCount]) {
    // DPP: lane ^ 1, lane ^ 2, and the mirrored lane of 8 and of 16. All lanes of a quad, and of 8, are equal
    // by then.
    constexpr int kNext = 0xb1, kSecondNext = 0x4e, kHalfMirror = 0x141, kMirror = 0x140;
    const auto add = [&](const auto& other) {
#pragma unroll
      for (float& sum : sums) sum += other(sum);
    };
    add(from<kNext>);
    add(from<kSecondNext>);
    if constexpr (kLanes > 4) add(from<kHalfMirror>);
    if constexpr (kLanes > 8) add(from<kMirror>);
    if constexpr (kLanes > 16) add([](float sum) { return lane_xor<16>(sum, 0); });
  }
  template <int kLane>
  FA_DEVICE static float from(float value) {
    return __builtin_bit_cast(
        float, __builtin_amdgcn_mov_dpp(__builtin_bit_cast(int, value), kLane, 0xf, 0xf, true));
  }
};

// Defines the kernel `name`.
#define FA_DELTA(name, dtype)                                                             \
  extern "C" __attribute__((global))                                                      \
  __attribute__((amdgpu_flat_work_group_size(fa::kDeltaThreads, fa::kDeltaThreads))) void \
  name(const fa::BwdParams) {                                                             \
    fa::Delta<fa::kCurrentGfx, dtype>::run(fa::backward_arguments());                     \
  }

}  // namespace fa
