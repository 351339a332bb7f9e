// Processing of a product by the waves of the ping-pong loop (dkdv/ping_pong.hpp): P, interleaved with the
// matrix instructions of another product.
#pragma once

#include "device/backward/dkdv/loop.hpp"

namespace fa {

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
