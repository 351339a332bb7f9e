// A flag of each of a lane's columns, kept where it costs a loop least.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

// Waves of 32 lanes: in scalar registers, a bit for each lane, so a loop compares nothing.
template <int kWave, int kColumns>
struct LaneFlags {
  using Held = uint32_t[kColumns];

  FA_DEVICE static void set(Held& held, int column, bool flag) { held[column] = lanes_with<kWave>(flag); }

  FA_DEVICE static bool at(const Held& held, int column) {
    const unsigned lane = __builtin_amdgcn_mbcnt_lo(here_uniform(-1), 0);
    return (held[column] >> lane & 1) != 0;
  }

  // Of any lane and column. Wave-uniform.
  FA_DEVICE static bool any(const Held& held) {
    uint32_t found = 0;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) found |= held[column];
    return found != 0;
  }

  FA_DEVICE static void settle(Held&, LaneMask<kWave>&, float&, float&) {}
};

// Waves of 64 lanes: their masks would take two scalar registers a column, so a lane has its own bits.
template <int kColumns>
struct LaneFlags<64, kColumns> {
  using Held = int[1];

  FA_DEVICE static void set(Held& held, int column, bool flag) {
    held[0] = (held[0] & ~(1 << column)) | (flag ? 1 << column : 0);
  }
  FA_DEVICE static bool at(const Held& held, int column) { return (held[0] >> column & 1) != 0; }
  FA_DEVICE static bool any(const Held& held) { return any_lane<64>(held[0] != 0); }

  // After each column of a softmax whose maximum rises: its conditions take two scalar registers each, and
  // the compiler would keep those of all columns for the end.
  FA_DEVICE static void settle(Held& held, LaneMask<64>& blind, float& floor, float& sum) {
    asm volatile("" : "+s"(blind));
    held[0] = here(held[0]), floor = here(floor), sum = here(sum);
    __builtin_amdgcn_sched_barrier(0);
  }
};

}  // namespace fa
