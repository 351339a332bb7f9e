// Reads the operands of a run of matrix steps from LDS kDistance steps before use, to hide the latency. The
// compiler would read as late as possible to save registers.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

template <class Operand, int kDistance>
struct Prefetch {
  Operand first[kDistance];

  template <class Read>
  FA_DEVICE explicit Prefetch(const Read& read) {
#pragma unroll
    for (int n = 0; n < kDistance; ++n) first[n] = read(n);
  }

  // Calls multiply(n, operand) for n from 0 to kSteps - 1.
  template <int kSteps, class Read, class Multiply>
  FA_DEVICE void run(const Read& read, const Multiply& multiply) const {
    static_assert(kSteps >= kDistance, "no more is read than needed");
    Operand operand[kSteps];
#pragma unroll
    for (int n = 0; n < kDistance; ++n) operand[n] = first[n];
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      if (n + kDistance < kSteps) operand[n + kDistance] = read(n + kDistance);
      __builtin_amdgcn_sched_barrier(0);
      multiply(n, operand[n]);
    }
  }
};

// No prefetch.
template <class Operand>
struct Prefetch<Operand, 0> {
  template <class Read>
  FA_DEVICE explicit Prefetch(const Read&) {}
};

}  // namespace fa
