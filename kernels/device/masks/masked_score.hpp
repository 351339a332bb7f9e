// What an element of a mask or a bias does to a score: the same in every kernel, forward and backward.
#pragma once

#include "device/arch/device.hpp"
#include "device/mma/unit.hpp"

namespace fa {

// By two instructions without a condition, or with one, in fewer registers; opaque where the compiler would
// make five of the two, for pairs of scores that no instruction takes.
enum class Hiding { by_bits, by_opaque_bits, by_select };

// kUnscaled: scores are without softmax_scale, and `scale` is its reciprocal; else they are multiplied by
// `scale` on the way.  kGuarded: a score may be so large that a bias has to stay finite where it is divided.
// kHiding: how a byte hides a score.
template <DType kDType, bool kUnscaled, bool kGuarded, Hiding kHiding>
struct MaskedScore {
  // A finite bias stays finite where it is divided by softmax_scale, and what hides a key (-inf) hides it.
  static constexpr float kLeast = -1e30f;

  float scale;

  // With byte i of `words`, which is 0 or 1.
  FA_DEVICE static float shown(float score, const uint32_t* words, int i) {
    if constexpr (kHiding == Hiding::by_select) {
      return (words[i / 4] & 1u << i % 4 * 8) != 0 ? score : -__builtin_inff();
    }
    // Two instructions without a condition.
    int shown = static_cast<int>(words[i / 4] << (31 - i % 4 * 8)) >> 31;
    if constexpr (kHiding == Hiding::by_opaque_bits) shown = here(shown);
    const int none = __builtin_bit_cast(int, -__builtin_inff());
    return __builtin_bit_cast(float, (__builtin_bit_cast(int, score) & shown) | (none & ~shown));
  }

  // With element i of `words`, of the tensors' type.
  FA_DEVICE float with_element(float score, const uint32_t* words, int i) const {
    const uint32_t pair = words[i / 2];
    if constexpr (kDType == DType::fp16) {
      return add(score, __builtin_bit_cast(f16x2, pair)[i % 2]);  // finite also when it is divided
    } else {
      return add_any(score, __builtin_bit_cast(float, i % 2 != 0 ? pair & 0xffff0000 : pair << 16));
    }
  }

  // With element i of `words`, fp32.
  FA_DEVICE float with_fp32(float score, const uint32_t* words, int i) const {
    return add_any(score, __builtin_bit_cast(float, words[i]));
  }

  // What a score that a byte hides or not begins with, without its product: -inf or 0.  The byte is `word`'s
  // from bit `shift` on.
  FA_DEVICE static float start_of_byte(uint32_t word, uint32_t shift) {
    constexpr uint32_t kNone = 0xff800000;  // -inf; with one more in the exponent it is 0
    return __builtin_bit_cast(float, (__builtin_amdgcn_ubfe(word, shift, 1) << 23) + kNone);
  }

 private:
  FA_DEVICE float add(float score, float bias) const {
    return kUnscaled ? __builtin_fmaf(bias, scale, score) : __builtin_fmaf(score, scale, bias);
  }

  FA_DEVICE float add_any(float score, float bias) const {
    if constexpr (!kUnscaled || !kGuarded) return add(score, bias);
    const float sum = add(score, __builtin_fmaxf(bias, kLeast));
    return bias == -__builtin_inff() ? bias : sum;
  }
};

}  // namespace fa
