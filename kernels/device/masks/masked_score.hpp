// Effect of a mask or bias element on a score, shared by all forward and backward kernels.
#pragma once

#include "device/arch/device.hpp"
#include "device/mma/unit.hpp"

namespace fa {

// Hiding by two unconditional instructions, or by a conditional one, in fewer registers. Opaque where the
// compiler would turn the two into five, for pairs of scores that lack a packed instruction.
enum class Hiding { by_bits, by_opaque_bits, by_select };

// kUnscaled: scores lack softmax_scale, and `scale` is its reciprocal. Otherwise scores are multiplied by
// `scale` on the way. kGuarded: scores may be so large that a divided bias has to stay finite. kHiding: how a
// byte hides a score.
template <DType kDType, bool kUnscaled, bool kGuarded, Hiding kHiding>
struct MaskedScore {
  // Keeps a finite bias finite when divided by softmax_scale, while -inf still hides a key.
  static constexpr float kLeast = -1e30f;

  float scale;

  // With byte i of `words`, 0 or 1.
  FA_DEVICE static float shown(float score, const uint32_t* words, int i) {
    if constexpr (kHiding == Hiding::by_select) {
      return (words[i / 4] & 1u << i % 4 * 8) != 0 ? score : -__builtin_inff();
    }
    // Two unconditional instructions.
    int shown = static_cast<int>(words[i / 4] << (31 - i % 4 * 8)) >> 31;
    if constexpr (kHiding == Hiding::by_opaque_bits) shown = here(shown);
    const int none = __builtin_bit_cast(int, -__builtin_inff());
    return __builtin_bit_cast(float, (__builtin_bit_cast(int, score) & shown) | (none & ~shown));
  }

  // What hides a key from its exponent, with byte i of `words`: below -4e37, or below 3e-38 for a visible
  // one. The byte becomes the highest of the number. The bytes below it do not matter.
  FA_DEVICE static float addend(const uint32_t* words, int i) {
    constexpr uint32_t kBytes = 0x00fe00fe;  // by bit 0: 0xfe or 0
    const uint32_t highest = __builtin_amdgcn_perm(kBytes, kBytes, words[i / 4]);
    return __builtin_bit_cast(float, highest << (24 - i % 4 * 8));
  }

  // With element i of `words`, in the tensors' type.
  FA_DEVICE float with_element(float score, const uint32_t* words, int i) const {
    const uint32_t pair = words[i / 2];
    if constexpr (kDType == DType::fp16) {
      return add(score, __builtin_bit_cast(f16x2, pair)[i % 2]);  // stays finite when divided
    } else {
      return add_any(score, __builtin_bit_cast(float, i % 2 != 0 ? pair & 0xffff0000 : pair << 16));
    }
  }

  // With fp32 element i of `words`.
  FA_DEVICE float with_fp32(float score, const uint32_t* words, int i) const {
    return add_any(score, __builtin_bit_cast(float, words[i]));
  }

  // Start value of a score, without its product: -inf or 0. The byte is in `word` from bit `shift` on.
  FA_DEVICE static float start_of_byte(uint32_t word, uint32_t shift) {
    constexpr uint32_t kNone = 0xff800000;  // -inf; adding one to the exponent gives 0
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
