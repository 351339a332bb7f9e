// A sink: one more key of a head, whose score is given and whose value is 0. It counts in a row's sum of
// exponentials only.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

// The head's sink, or -inf if the call has none.
FA_DEVICE float sink_of(const float* sinks, int head) {
  // Or the index is a vector even where it is uniform.
  using Uniform = __attribute__((address_space(4))) const float*;
  return __builtin_expect(sinks == nullptr, 1) ? -__builtin_inff() : ((Uniform)sinks)[head];
}

// A row's sum of exponentials and its sink's. 0: the row sees no key, and keeps it. `level`: log2 of what the
// exponentials are divided by. A sink far above stays below the limits of fp32, and lse_with_sink() adjusts.
FA_DEVICE float sum_with_sink(float sum, float level, float sink) {
  constexpr float kLog2e = 1.44269504088896341f, kMost = 100;
  const float power = __builtin_fmaf(sink, kLog2e, -level);
  return sum == 0 ? 0 : sum + __builtin_amdgcn_exp2f(power > kMost ? kMost : power);
}

// The log-sum-exp of such a sum.
FA_DEVICE float lse_with_sink(float lse, float sink) { return __builtin_fmaxf(lse, sink); }

}  // namespace fa
