// Reads the operands of a run of matrix steps from LDS kDistance steps before use, to hide the latency. The
// compiler would read as late as possible to save registers.
//
// kAtOnce: so many operands are read together, and waited for once. A wave alone on its SIMD multiplies in no
// other wave's place while it waits.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

template <class Operand, int kDistance, int kAtOnce = 1>
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
    static_assert(kDistance % kAtOnce == 0 && kSteps % kAtOnce == 0, "tiles.toml: prefetch is whole groups");
    Operand operand[kSteps];
#pragma unroll
    for (int n = 0; n < kDistance; ++n) operand[n] = first[n];
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      if (n % kAtOnce == 0) {
#pragma unroll
        for (int next = n + kDistance; next < n + kDistance + kAtOnce && next < kSteps; ++next) {
          operand[next] = read(next);
        }
        __builtin_amdgcn_sched_barrier(0);
#pragma unroll
        for (int each = n + kAtOnce - 1; kAtOnce > 1 && each >= n; --each) operand[each] = here(operand[each]);
      }
      multiply(n, operand[n]);
    }
  }
};

// No prefetch.
template <class Operand, int kAtOnce>
struct Prefetch<Operand, 0, kAtOnce> {
  template <class Read>
  FA_DEVICE explicit Prefetch(const Read&) {}
};

}  // namespace fa
