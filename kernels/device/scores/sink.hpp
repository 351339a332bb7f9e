// A sink: one more key of a head, whose score is given and whose value is 0. It counts in a row's sum of
// exponentials only.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

inline constexpr float kNoSink = -__builtin_inff();

// The head's sink, if the call has any.
FA_DEVICE float sink_of(const float* sinks, int head) {
  // In the constant address space, so a uniform head takes a scalar load.
  using Uniform = __attribute__((address_space(4))) const float*;
  return __builtin_expect(sinks == nullptr, 1) ? kNoSink : ((Uniform)sinks)[head];
}

// A row's sum of exponentials and its sink's. 0 for a row without a visible key. `level`: log2 of what the
// exponentials are divided by. It is -inf for scores of the least finite number, so it is raised to a finite
// one: a sink of -inf adds 0 there too. A sink far above counts 2^kMost, and lse_with_sink() corrects the
// rest.
FA_DEVICE float sum_with_sink(float sum, float level, float sink) {
  constexpr float kLog2e = 1.44269504088896341f, kMost = 100;
  const float finite = __builtin_fmaxf(level, -0x1.fffffep127f);
  const float power = __builtin_fmaf(sink, kLog2e, -finite);
  return sum == 0 ? 0 : sum + __builtin_amdgcn_exp2f(power > kMost ? kMost : power);
}

// The log-sum-exp of such a sum.
FA_DEVICE float lse_with_sink(float lse, float sink) { return __builtin_fmaxf(lse, sink); }

}  // namespace fa
