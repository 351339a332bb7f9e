// A mask or bias added to scores by matrix instructions: as a product with a diagonal matrix. The mask is the
// operand, which lanes load in runs of 8 keys, and the result has the layout of scores, whether their rows or
// columns are keys. For matrix units with single-instruction steps.
//
// Operands must be finite, because each element is also multiplied by zeros.
#pragma once

#include "device/mma/mfma.hpp"

namespace fa {

typedef unsigned short u16x2 __attribute__((ext_vector_type(2)));

template <class Unit, DType kDType>
struct MaskProduct {
  using A = typename Unit::A;
  static constexpr bool kFp16 = kDType == DType::fp16;

  // Eight bytes of 0 (hidden) or 1 (shown). Shifted by three bits and added to this, one is the upper half of
  // 2^15 (bf16: 2^113) or of -0. kHiding: its factor on the diagonal. Hidden scores become -1e9 or less.
  // Neighbouring bytes are in different words.
  static constexpr uint32_t kByteBase = 0x78787878, kHiding = kFp16 ? 0xfbff : 0xc600;
  static constexpr uint32_t kOne = kFp16 ? 0x3c00 : 0x3f80;

  FA_DEVICE static A of_bytes(uint32_t low, uint32_t high) {
    const uint32_t first = (low << 3) + kByteBase, second = (high << 3) + kByteBase;
    return {even(first), odd(first), even(second), odd(second)};
  }

  // Elements, with the least finite number in place of -inf.
  FA_DEVICE static A finite(const A& elements) {
    // As unsigned numbers, negative ones grow towards -inf.
    constexpr u16x2 kLeast = kFp16 ? u16x2{0xfbff, 0xfbff} : u16x2{0xff7f, 0xff7f};
    A finite;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = elements[i];
      finite[i] =
          __builtin_bit_cast(uint32_t, __builtin_elementwise_min(__builtin_bit_cast(u16x2, pair), kLeast));
    }
    return finite;
  }

  // Clears elements from number `keys` on, whose memory may hold anything.
  FA_DEVICE static A only(const A& elements, int keys) {
    A only;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t first = keys > 2 * i ? 0xffff : 0, second = keys > 2 * i + 1 ? 0xffff0000 : 0;
      only[i] = elements[i] & (first | second);
    }
    return only;
  }

  // The diagonal's number for key `key` of a run, at its position in the word.
  FA_DEVICE static uint32_t number(int key, bool of_bytes) {
    const int half = of_bytes ? key / 2 % 2 : key % 2;
    return (of_bytes ? kHiding : kOne) << half * 16;
  }

  // A lane's part of the diagonal for run 0 or 1 of both halves of the wave: lane l has key l of the first
  // half's from 0 to 15, and of the second half's from 48 to 63. Made of scalar numbers, which take no vector
  // registers.
  FA_DEVICE static A diagonal(uint32_t number, int run, bool of_bytes) {
    const uint64_t first = of_bytes ? 5 : 3, even = first | first << 48, odd = even << (of_bytes ? 1 : 2);
    A diagonal;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint64_t lanes = (i % 2 == 0 ? even : odd) << (run * 8 + i / 2 * 4);
      diagonal[i] = number_in(lanes, number);
    }
    return diagonal;
  }

 private:
  // `number` in lanes with their bit set, 0 in others.
  FA_DEVICE static uint32_t number_in(uint64_t lanes, uint32_t number) {
#if __has_builtin(__builtin_amdgcn_inverse_ballot_w64)
    return __builtin_amdgcn_inverse_ballot_w64(lanes) ? number : 0;
#else  // ROCm 6.4's compiler misses the wait of a matrix instruction for this
    asm("v_cndmask_b32 %0, 0, %0, %1\n\ts_nop 1" : "+v"(number) : "s"(lanes));
    return number;
#endif
  }
  FA_DEVICE static uint32_t even(uint32_t bytes) { return __builtin_amdgcn_perm(bytes, bytes, 0x020c000c); }
  FA_DEVICE static uint32_t odd(uint32_t bytes) { return bytes & 0xff00ff00; }
};

}  // namespace fa
