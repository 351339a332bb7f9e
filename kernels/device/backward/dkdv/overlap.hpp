// What the waves of dkdv/ping_pong.hpp and dkdv/staggered.hpp do before and between matrix instructions: read
// a product's first operands, and compute P.
#pragma once

#include "device/backward/dkdv/loop.hpp"

namespace fa {

// Operands are read by begin().
struct Later {};

// A product whose first operands are prefetched before other work: behind a barrier, where all waves would
// wait for them at once, or while the product's other operand is computed. Operand A of steps 0 to kCount *
// kSteps of a tile: for each step of the contraction, the operands of kSteps periods.
template <class Unit, class Tile, int kSteps, int kAhead, class Reader = OperandReader<Unit, Tile>>
struct EarlyOperands {
  static_assert(kAhead > 0, "something is read");
  using A = typename Unit::A;

  Reader operands;
  A ahead[kAhead];

  FA_DEVICE EarlyOperands(LdsBytes tile, int lane) : EarlyOperands(Reader(tile, lane)) {}
  FA_DEVICE explicit EarlyOperands(const Reader& reader) : operands(reader) { begin(); }
  FA_DEVICE EarlyOperands(const Reader& reader, Later) : operands(reader) {}
  FA_DEVICE void begin() {
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

// A product to work on. A copy: the compiler would keep its results in both kinds of registers, for waves of
// either role.
template <class B>
struct Worked {
  typename B::Result result;

  FA_DEVICE explicit Worked(const typename B::Result& product) {
#pragma unroll
    for (int step = 0; step < B::kSteps; ++step) result[step] = product[step];
  }
};

// P of the plain loop, from scores, part by part: interleaved with the matrix instructions of another
// product.
template <class B>
struct Exponentials {
  using P = typename B::P;

  Worked<B> s;

  FA_DEVICE explicit Exponentials(const typename B::Result& product) : s(product) {}

  FA_DEVICE void part(const B& block, int part, int parts) {
#pragma unroll
    for (int f = part * P::kHeld / parts; f < (part + 1) * P::kHeld / parts; ++f) {
      float& value = element<typename B::Unit>(s.result, 0, f);
      if (B::kTraits.packed_fp32 && f % 2 == 0) {
        // Two at once.
        float& other = element<typename B::Unit>(s.result, 0, f + 1);
        const f32x2 both = f32x2{value, other} * block.factor;
        value = both[0], other = both[1];
      } else if (!B::kTraits.packed_fp32) {
        value *= block.factor;
      }
      value = __builtin_amdgcn_exp2f(value);
    }
  }

  FA_DEVICE P weights(const B& block, int first, int wave_key, bool masked) {
    if (masked) mask(block, s.result, first, wave_key);
    const P packed = P::of([&](int, int f) { return element<typename B::Unit>(s.result, 0, f); });
    block.give(packed);
    return packed;
  }
};

}  // namespace fa
