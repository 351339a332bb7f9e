// Combines the results of the parts of the keys (split-KV). A workgroup has one row; its groups of threads
// take parts in turn.
//
//   lse = log(sum of exp(lse of a part)),  out = sum of exp(lse of a part - lse) * out of the part
#pragma once

#include "device/arch/current.hpp"
#include "device/call/config.hpp"
#include "device/call/params.hpp"
#include "device/call/sequence.hpp"
#include "device/mma/unit.hpp"
#include "device/scores/sink.hpp"

namespace fa {

template <Gfx kGfx, DType kDType>
struct Combine {
  static constexpr int kWave = traits(kGfx).wave;
  static constexpr int kWidth = 4;  // elements of a row per thread
  static constexpr int kLdsBytes = kCombineThreads * kWidth * 4;
  static constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;
  static constexpr float kNone = -__builtin_inff();

  using LdsFloats = __attribute__((address_space(3))) f32x4*;

  FA_DEVICE static void run(const CombineParams& params, LdsBytes lds) {
    const int batch = __builtin_amdgcn_workgroup_id_z(), row = __builtin_amdgcn_workgroup_id_x();
    const Sequence found = queries(params, batch);
    if (row < found.seqlen_q) Combine(params, batch, found.q_first + row).join((LdsFloats)lds);
  }

 private:
  const CombineParams& params;
  const int64_t out_at;
  const int64_t lse_at;
  const int thread;

  FA_DEVICE Combine(const CombineParams& params, int batch, int64_t row)
      : params(params),
        out_at((params.cu_seqlens_q == nullptr ? batch : 0) * params.o_batch + head() * params.o_head +
               row * params.o_row),
        lse_at((params.cu_seqlens_q == nullptr ? batch : 0) * params.lse_batch + head() * params.lse_head +
               row),
        thread(__builtin_amdgcn_workitem_id_x()) {}

  FA_DEVICE static int head() { return __builtin_amdgcn_workgroup_id_y(); }

  FA_DEVICE float lse_of(int part) const { return params.partial_lse[part * params.partial_split + lse_at]; }

  FA_DEVICE void join(LdsFloats lds) const {
    const float highest = highest_lse();
    // If all parts are -inf, exp(-inf - -inf) would be NaN.
    const float shift = highest == kNone ? 0 : highest;
    const float sink = sink_of(params.sink, head());
    const float sum = sum_with_sink(sum_of_parts(shift), shift * kLog2e, sink);
    const int columns = params.head_dim / kWidth, groups = kCombineThreads / columns;
    const int group = thread / columns, column = thread - group * columns;
    f32x4 o = {};
    for (int part = group; group < groups && part < params.splits; part += groups) {
      const float lse = lse_of(part);
      if (lse == kNone) continue;  // the part wrote nothing
      const float* from = params.partial_out + (part * params.partial_split + lse_at) * params.head_dim;
      o += *reinterpret_cast<const f32x4*>(from + column * kWidth) * exp(lse - shift);
    }
    lds[thread] = o;
    workgroup_barrier();
    if (group != 0) return;
    for (int other = 1; other < groups; ++other) o += lds[other * columns + column];
    store(o * (sum == 0 ? 0 : __builtin_amdgcn_rcpf(sum)), column);
    if (column == 0) {
      const float lse = sum > 0 ? shift + __builtin_amdgcn_logf(sum) * kLn2 : __builtin_inff();
      params.lse[lse_at] = lse_with_sink(lse, sink);
    }
  }

  FA_DEVICE static float exp(float x) { return __builtin_amdgcn_exp2f(x * kLog2e); }

  // Every wave reads all parts, so waves exchange nothing.
  FA_DEVICE float highest_lse() const {
    float highest = kNone;
    const int lane = thread % kWave;
    for (int part = lane; part < params.splits; part += kWave) {
      highest = __builtin_fmaxf(highest, lse_of(part));
    }
    return across_lanes<kWave - 1>(highest, lane, [](float a, float b) { return __builtin_fmaxf(a, b); });
  }

  FA_DEVICE float sum_of_parts(float shift) const {
    float sum = 0;
    const int lane = thread % kWave;
    for (int part = lane; part < params.splits; part += kWave) sum += exp(lse_of(part) - shift);
    return across_lanes<kWave - 1>(sum, lane, [](float a, float b) { return a + b; });
  }

  FA_DEVICE void store(f32x4 o, int column) const {
    const u32x2 words = {pack<kDType>(o[0], o[1]), pack<kDType>(o[2], o[3])};
    char* out = static_cast<char*>(params.out) + (out_at + column * kWidth) * 2;
    *reinterpret_cast<u32x2*>(out) = words;
  }
};

// Defines the kernel `name`.
#define FA_COMBINE(name, dtype)                                                               \
  extern "C" __attribute__((global))                                                          \
  __attribute__((amdgpu_flat_work_group_size(fa::kCombineThreads, fa::kCombineThreads))) void \
  name(const fa::CombineParams params) {                                                      \
    using Kernel = fa::Combine<fa::kCurrentGfx, dtype>;                                       \
    __attribute__((shared, aligned(16))) static char lds[Kernel::kLdsBytes];                  \
    Kernel::run(params, (fa::LdsBytes)lds);                                                   \
  }

}  // namespace fa
