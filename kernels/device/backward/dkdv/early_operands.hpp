// A product whose first operands are prefetched before other work: behind a barrier, where all waves would
// wait for them at once, or while the product's other operand is computed.
#pragma once

#include "device/backward/parts/block.hpp"

namespace fa {

// Operand A of steps 0 to kCount * kSteps of a tile: for each step of the contraction, the operands of kSteps
// periods.
template <class Unit, class Tile, int kSteps, int kAhead, class Reader = OperandReader<Unit, Tile>>
struct EarlyOperands {
  static_assert(kAhead > 0, "something is read");
  using A = typename Unit::A;

  Reader operands;
  A ahead[kAhead];

  FA_DEVICE EarlyOperands(LdsBytes tile, int lane) : EarlyOperands(Reader(tile, lane)) {}
  FA_DEVICE explicit EarlyOperands(const Reader& reader) : operands(reader) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) ahead[j] = read(j);
    __builtin_amdgcn_sched_barrier(0);
  }

  FA_DEVICE A read(int j) const { return operands.read(j / kSteps, j % kSteps); }

  // results[step] += tile * operand.
  template <int kCount, class Operand>
  FA_DEVICE void multiply(typename Unit::C* results, const Operand& operand) {
#pragma unroll
    for (int j = 0; j < kCount * kSteps; ++j) {
      Unit::multiply(results[j % kSteps], ahead[j % kAhead], operand.operand(j / kSteps));
      if (j + kAhead < kCount * kSteps) ahead[j % kAhead] = read(j + kAhead);
      __builtin_amdgcn_sched_barrier(0);
    }
  }
};

// Replaces it if it would take too many registers.
struct NoEarlyOperands {
  FA_DEVICE NoEarlyOperands(LdsBytes, int) {}
};

// Whether an unread sum may still be in flight, in registers used again, after all the code between a product
// and the next. clang 22 leaves one wait state too few (the static checks find it).
template <class B>
inline constexpr bool kLongestResults = !B::kTraits.separate_acc_vgprs && B::kTraits.step_clocks == 64;

}  // namespace fa
