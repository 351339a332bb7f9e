// Probabilities and gradients of scores from products, in backward kernels.
//
//   P  = exp(score - lse)                               score: scale * q.k, softcap, ALiBi, as in the forward
//   dS = P * (dP - delta) * d score / d (scale * q.k)   dP: dout.v, of the probabilities kept by dropout
#pragma once

#include "device/arch/device.hpp"
#include "device/call/backward_params.hpp"
#include "device/masks/bias.hpp"
#include "device/mma/unit.hpp"
#include "device/scores/philox.hpp"

namespace fa {

// From scores to probabilities. The scale counts as positive: its sign goes into an operand
// (memory/query.hpp).
struct Scoring {
  static constexpr float kLog2e = 1.44269504088896341f;

  template <DType kDType>
  static constexpr float kGain = kDType == DType::fp16 ? 0.000504855f : 0.00406267f;  // log2 of kCutGain

  float factor;        // scale * log2(e)
  float inner, outer;  // softcap's: scale / softcap, and softcap * log2(e); 0: none
  float slope;         // ALiBi's, times log2(e); 0: none
  uint32_t below;      // dropout_below
  float kept;          // the factor of kept probabilities
  PhiloxKey key;

  // For the plain loop.
  FA_DEVICE static float factor_of(const BwdParams& p) {
    return (p.scale == 0 ? 1 : __builtin_fabsf(p.scale)) * kLog2e;
  }

  // For the loop with all features, for a head of q.
  FA_DEVICE Scoring(const BwdParams& p, int batch, int head)
      : factor(__builtin_fabsf(p.scale) * kLog2e),
        inner(p.softcap == 0 ? 0 : __builtin_fabsf(p.scale) / p.softcap),
        outer(p.softcap * kLog2e),
        slope(0),
        below(p.dropout_below),
        kept(p.dropout_below == 0 ? 1 : p.dropout_scale),
        key{0, 0} {
    if (p.alibi_slopes != nullptr) slope = uniform(p.alibi_slopes[batch * p.alibi_batch + head]) * kLog2e;
    if (below != 0) key = key_of(p);
  }

  FA_DEVICE static PhiloxKey key_of(const BwdParams& p) { return {word(p, 0), word(p, 1)}; }
  FA_DEVICE bool drops() const { return below != 0; }

  // Turns the product q.k into the score times log2(e), without ALiBi.
  template <class Each>
  FA_DEVICE void cap(const Each& each) const {
    if (outer == 0) {
      each([&](float x, int, int) { return x * factor; });
    } else {
      each([&](float x, int, int) { return tanh_of(x * inner) * outer; });
    }
  }

  // Derivative by the score before softcap, of a result of `cap`. Softcap only.
  FA_DEVICE float cap_derivative(float capped) const {
    const float t = capped * __builtin_amdgcn_rcpf(outer);
    return __builtin_fmaf(-t, t, 1);
  }
  FA_DEVICE bool caps() const { return outer != 0; }

  // The probability for a result of `cap`. `distance`: from the key to the query's diagonal. `lse`: from
  // `shift`.
  FA_DEVICE float probability(float capped, float distance, float lse) const {
    return __builtin_amdgcn_exp2f(__builtin_fmaf(-slope, __builtin_fabsf(distance), capped) - lse);
  }

  // Subtracted from scores times log2(e). It enlarges probabilities by 2^more (see Raised).
  FA_DEVICE static float shift(float lse, float more) { return __builtin_fmaf(lse, kLog2e, -more); }

  // The log-sum-exp of a row with a mask or bias. A row with +inf sees no key, and below kFarBelow recomputed
  // probabilities have no precision left. Both get zero gradients: the returned number is so large that
  // probabilities are 0, and finite, so products cannot become NaN.
  FA_DEVICE static float masked_lse(float lse) {
    constexpr float kNoGradients = 1e30f;
    return lse >= kFarBelow ? __builtin_fminf(lse, kNoGradients) : kNoGradients;
  }

 private:
  FA_DEVICE static uint32_t word(const BwdParams& p, int i) {
    return static_cast<uint32_t>(uniform(static_cast<int>(p.rng_state[i])));
  }
};

}  // namespace fa
