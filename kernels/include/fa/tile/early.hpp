// Operands of a run of matrix steps, read from LDS kEarly steps before each is needed: so much later than it
// was asked for it has arrived.  Left to itself the compiler reads as late as it can, to save registers.
#pragma once

#include "fa/arch/device.hpp"

namespace fa {

template <class Operand, int kEarly>
struct Early {
  Operand first[kEarly];

  template <class Read>
  FA_DEVICE explicit Early(const Read& read) {
#pragma unroll
    for (int n = 0; n < kEarly; ++n) first[n] = read(n);
  }

  // Calls multiply(n, operand) for n from 0 to kSteps - 1.
  template <int kSteps, class Read, class Multiply>
  FA_DEVICE void run(const Read& read, const Multiply& multiply) const {
    static_assert(kSteps >= kEarly, "no more is read than needed");
    Operand operand[kSteps];
#pragma unroll
    for (int n = 0; n < kEarly; ++n) operand[n] = first[n];
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      if (n + kEarly < kSteps) operand[n + kEarly] = read(n + kEarly);
      __builtin_amdgcn_sched_barrier(0);
      multiply(n, operand[n]);
    }
  }
};

// None is read early.
template <class Operand>
struct Early<Operand, 0> {
  template <class Read>
  FA_DEVICE explicit Early(const Read&) {}
};

}  // namespace fa
