// Powers of two that keep fp16 values of the backward kernels above its denormals, where the matrix unit
// takes these as zero. Without such a unit, and for bf16, all are 1.
#pragma once

#include "device/backward/parts/scoring.hpp"

namespace fa {

// dout and dS are enlarged by 2^6, so that values from 2^-20 on count. Values from 1024 on become infinite.
// dS is then rounded instead of truncated, because truncation gives the largest number. P of dkdv is enlarged
// by 2^14. P of dq is not rounded, so it needs no gain. Sums are divided by powers of two only, as elsewhere.
template <Gfx kGfx, DType kDType>
struct Raised {
  static constexpr bool kIs = kFlushes<kGfx, kDType>;
  static constexpr float kDout = kIs ? 64 : 1, kP = kIs ? 1 << 14 : 1;
  // log2 of the factor of P: of dkdv, and of dq.
  static constexpr float kLogP = Scoring::kGain<kDType> + (kIs ? 14 : 0);
  static constexpr float kLogPOfDq = kIs ? 0 : Scoring::kGain<kDType>;
  // Factor of dP less delta in dkdv, whose P gives dS another factor. dS loses the gain that kOfDk gives.
  static constexpr float kOfProducts = 1 / kP / kCutGain<kDType>;
  // Factors of sums: of dv; of dk and the fused kernel's sums; of dq; of the dS stored by the dq kernel.
  static constexpr float kOfDv = 1 / kP / kDout;
  static constexpr float kOfDk = kCutGain<kDType> / kDout;
  static constexpr float kOfDq = 1 / kDout;
  static constexpr float kOfDscores = kIs ? kOfDq : 1 / kCutGain<kDType>;

  // A product with 1 would move instructions.
  FA_DEVICE static float times([[maybe_unused]] float factor, float x) {
    if constexpr (kIs) return x * factor;
    return x;
  }

  // x, enlarged like dout.
  FA_DEVICE static float raise(float x) { return times(kDout, x); }

  // Two elements a word.
  template <class Words>
  FA_DEVICE static Words dout(Words words, bool is = true) {
    const f16x2 factor = is ? f16x2(static_cast<_Float16>(kDout)) : f16x2(1);
#pragma unroll
    for (unsigned i = 0; i < sizeof(Words) / 4; ++i) {
      const uint32_t word = words[i];  // a scalar: bit casts of a vector's element err
      words[i] = __builtin_bit_cast(uint32_t, __builtin_bit_cast(f16x2, word) * factor);
    }
    return words;
  }
};

template <class B>
using RaisedOf = Raised<B::kArch, B::kDType>;

// What a thread has of a tile's dout, before it is stored.
template <class B, class Pieces>
FA_DEVICE void raise_dout([[maybe_unused]] const B& block, [[maybe_unused]] Pieces& stage) {
  if constexpr (RaisedOf<B>::kIs) {
    stage.change(block.mover(),
                 [](int tensor, u32x2 words) { return RaisedOf<B>::dout(words, tensor == 1); });
  }
}

// As a sign of dout's rows (tile/query.hpp).
template <class Raise>
struct DoutSign {
  FA_DEVICE explicit DoutSign(float) {}
  FA_DEVICE static bool none() { return false; }
  template <class Words>
  FA_DEVICE static Words apply(Words words) {
    return Raise::dout(words);
  }
};

}  // namespace fa
