// Reads the operands of a run of matrix steps from LDS kDistance steps before use, to hide the latency. The
// compiler would read as late as possible to save registers.
//
// kAtOnce: so many operands are read together and waited for once. A wave alone on its SIMD pays for each
// s_waitcnt with the time of a product's instruction.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

// Operands read together: with several columns a lane, on VALUs. Matrix units hide the waits.
template <class Config>
constexpr int together(int columns, const Config& config) {
  const bool in_groups = columns > 1 && config.steps_at_once > 0;
  return in_groups && config.prefetch % config.steps_at_once == 0 ? config.steps_at_once : 1;
}

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
    static_assert(kDistance % kAtOnce == 0 && kSteps % kAtOnce == 0, "whole groups");
    Operand operand[kSteps];
#pragma unroll
    for (int n = 0; n < kDistance; ++n) operand[n] = first[n];
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      if constexpr (kAtOnce > 1) {
        if (n % kAtOnce == 0) next_group<kSteps>(read, operand, n);
      } else {
        if (n + kDistance < kSteps) operand[n + kDistance] = read(n + kDistance);
        __builtin_amdgcn_sched_barrier(0);
      }
      multiply(n, operand[n]);
    }
  }

 private:
  // Reads the group kDistance steps after that of step n, and waits for n's.
  template <int kSteps, class Read>
  FA_DEVICE static void next_group(const Read& read, Operand* operand, int n) {
#pragma unroll
    for (int next = n + kDistance; next < n + kDistance + kAtOnce; ++next) {
      if (next < kSteps) operand[next] = read(next);
    }
    __builtin_amdgcn_sched_barrier(0);
    // The last one first: the others arrived before it.
#pragma unroll
    for (int i = kAtOnce - 1; i >= 0; --i) operand[n + i] = here(operand[n + i]);
  }
};

// No prefetch.
template <class Operand, int kAtOnce>
struct Prefetch<Operand, 0, kAtOnce> {
  template <class Read>
  FA_DEVICE explicit Prefetch(const Read&) {}
};

}  // namespace fa
