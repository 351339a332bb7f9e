// delta = sum over head_dim of dout * out, in fp32, one number for each query and head.
#pragma once

#include "fa/arch/current.hpp"
#include "fa/kernel/backward_block.hpp"

namespace fa {

template <Gfx kGfx, DType kDType>
struct Delta {
  static constexpr int kWidth = 8;  // elements of a row that a thread has
  static constexpr int kUnitBytes = kWidth * 2, kNumberBytes = sizeof(float);
  static constexpr int kMostLanes = kMaxHeadDim / kWidth, kLeastLanes = 4;
  static constexpr int kAtOnce = 2;  // rows of a thread, so that fewer loads wait for each other
  static_assert(kMostLanes <= traits(kGfx).wave, "a row's lanes are of one wave");
  static_assert(kDeltaRows % (kAtOnce * kDeltaThreads / kLeastLanes) == 0, "all threads have as many rows");
  template <int kBytes>
  using View = BufferView<kDeltaRows, kBytes, traits(kGfx).buffer_word3>;

  FA_DEVICE static void run(const BwdParams& params) {
    const int batch = __builtin_amdgcn_workgroup_id_z(), head = __builtin_amdgcn_workgroup_id_y();
    const int thread = __builtin_amdgcn_workitem_id_x();
    const Sequence sequence = fa::sequence(params, batch);
    const int first = __builtin_amdgcn_workgroup_id_x() * kDeltaRows;
    if (first >= sequence.seqlen_q) return;
    const bool ragged = params.cu_seqlens_q != nullptr;
    const int units = uniform(params.head_dim / kWidth);
    int lanes = kLeastLanes;
    while (lanes < units) lanes *= 2;
    const auto view_of = [&](const BwdInput& tensor) {
      const HeadRows rows = rows_of(tensor, ragged, batch, head, sequence.q_first, sequence.seqlen_q);
      return View<kUnitBytes>(rows, first, units * kUnitBytes);
    };
    const View<kUnitBytes> out = view_of(params.out), dout = view_of(params.dout);
    const float* const numbers =
        params.delta + (ragged ? 0 : batch) * params.lse_batch + head * params.lse_head + sequence.q_first;
    const View<kNumberBytes> delta({reinterpret_cast<const char*>(numbers), kNumberBytes, sequence.seqlen_q},
                                   first);
    // Lanes without a unit of the row read the last one, and those that store nothing store beyond the end.
    const int place = thread & (lanes - 1), row = thread / lanes, each = uniform(kDeltaThreads / lanes);
    const int unit = place < units ? place : units - 1;
    int from_out = static_cast<int>(row * out.row_bytes + unit * kUnitBytes);
    int from_dout = static_cast<int>(row * dout.row_bytes + unit * kUnitBytes);
    int to = place == 0 ? row * kNumberBytes : kBeyond;
    for (int i = 0; i < kDeltaRows; i += kAtOnce * each) {
      u32x4 words[kAtOnce][2];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        words[j][0] = out.template read_at<u32x4>(from_out);
        words[j][1] = dout.template read_at<u32x4>(from_dout);
        from_out += static_cast<int>(each * out.row_bytes);
        from_dout += static_cast<int>(each * dout.row_bytes);
      }
      float sum[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        // Opaque, or two sums are formed in pairs, whose operands have to be converted first.
        sum[j] = here(product(words[j][0], words[j][1]));
        if (place >= units) sum[j] = 0;
      }
      joined(sum, lanes);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        delta.write_at(to, sum[j]);
        to += each * kNumberBytes;
      }
    }
  }

 private:
  static constexpr int kBeyond = 1 << 30;  // an offset that no tile of delta has

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

  // Sums over the row's lanes: a power of two of them, from 4 to 32.
  FA_DEVICE static void joined(float (&sums)[kAtOnce], int lanes) {
    // DPP: lane ^ 1, lane ^ 2, and the mirrored lane of 8 and of 16, as all of a quad, and of 8, are alike.
    constexpr int kNext = 0xb1, kSecondNext = 0x4e, kHalfMirror = 0x141, kMirror = 0x140;
    const auto add = [&](const auto& other) {
#pragma unroll
      for (float& sum : sums) sum += other(sum);
    };
    add(from<kNext>);
    add(from<kSecondNext>);
    if (lanes > 4) add(from<kHalfMirror>);
    if (lanes > 8) add(from<kMirror>);
    if (lanes > 16) add([](float sum) { return lane_xor<16>(sum, 0); });
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
  name(const fa::BwdParams params) {                                                      \
    fa::Delta<fa::kCurrentGfx, dtype>::run(params);                                       \
  }

}  // namespace fa
