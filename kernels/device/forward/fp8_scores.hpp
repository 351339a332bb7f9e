// What differs in a forward of q, k and v in fp8: descales, in place of a part of the arguments, and how
// codes are read.
#pragma once

#include "device/forward/coded_scores.hpp"
#include "device/memory/codes/bytes.hpp"

namespace fa {

FA_DEVICE const Fp8Params& fp8_params() {
  return reinterpret_cast<const Fp8Params&>(reloaded(kernel_arguments()));
}
FA_DEVICE bool reads_fnuz(const Fp8Params& p) {
  return static_cast<CodeFormat>(p.format) == CodeFormat::e4m3fnuz;
}

// The descale of a sequence's head of keys, or 1 if it may be missing.
template <bool kThere = false>
FA_DEVICE float fp8_descale(const float* base, int64_t batch_stride, int64_t head_stride, int batch,
                            int head) {
  using Uniform = __attribute__((address_space(4))) const float*;
  if (!kThere && base == nullptr) return 1;
  return ((Uniform)base)[batch * batch_stride + head * head_stride];
}

// Multiplies the scale of scores by the descales of q and k. That of v becomes the factor of out.
template <class B>
FA_DEVICE void descale(FwdParams& params, const WorkgroupPlace& place) {
  const Fp8Params& p = fp8_params();
  const int batch = place.batch, head = head_of_keys(params, place.head);
  // Of e4m3fn in e4m3fnuz.
  const float unit = B::kCounts || B::kTraits.fp8 == Fp8::ocp || reads_fnuz(p) ? 1 : 2;
  const float q = fp8_descale(p.q_descale, p.q_descale_batch, p.q_descale_head, batch, head);
  const float k = fp8_descale(p.k_descale, p.k_descale_batch, p.k_descale_head, batch, head);
  const float v = fp8_descale<B::kCounts>(p.v_descale, p.v_descale_batch, p.v_descale_head, batch, head);
  if constexpr (!B::kCounts) params.scale = uniform(params.scale * (q * unit) * (k * unit));
  params.dropout_scale = uniform(v * (unit * B::Unit::kOutUnit));
}

template <class B>
struct Fp8Scores : PlainScores<B> {
  using PlainScores<B>::PlainScores;

  FA_DEVICE static void begin(typename B::Convert& convert) {
    if constexpr (B::kTraits.fp8 == Fp8::fnuz) convert.begin(reads_fnuz(fp8_params()));
  }
};

}  // namespace fa
