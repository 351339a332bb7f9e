// bf16 as fp16, for a unit that multiplies fp16 only: times 2^kScale, undone later. Exact for every value
// accepted by `narrows`.
//
// Proof: a bf16 number is m * 2^e with an integer |m| < 2^8. Accepted are 0 and 2^-25 <= |x| < 2^8, so 2^-17
// <= |x * 2^8| < 2^16. The largest is 255 * 2^8 = 65280, below fp16's maximum 65504. All are multiples of
// 2^(-17 - 7) = 2^-24, fp16's smallest step. Below 2^-14 the step stays at 2^-24. Above, fp16's 11 bits hold
// the 8 bits. inf and NaN are rejected. tests/engine/layout tries all 65536 values.
//
// Products of two such fp16 numbers are exact in fp32 (at most 16 bits). Compared with fp32 arithmetic on the
// bf16 values, only the order of additions may differ.
#pragma once

#include <stdint.h>

#include "device/arch/device.hpp"
#include "device/scores/narrow_range.hpp"

namespace fa {

// Passes elements through.
struct Unchanged {
  template <class Words>
  FA_DEVICE Words operator()(Words words) {
    return words;
  }
  FA_DEVICE bool exact() const { return true; }
  FA_DEVICE void pin() {}
};

// Converts pairs of bf16 to fp16. `exact` checks all of them at the end, by their range.
struct Narrow {
  typedef uint16_t u16x2 __attribute__((ext_vector_type(2)));
  typedef int16_t s16x2 __attribute__((ext_vector_type(2)));

  // The range of magnitude - 1 modulo 2^16: 0 becomes the largest unsigned and the smallest signed number.
  u16x2 least = {0xffff, 0xffff};
  s16x2 most = {-1, -1};

  template <class Words>
  FA_DEVICE Words operator()(Words words) {
#pragma unroll
    for (unsigned i = 0; i < sizeof(Words) / 4; ++i) words[i] = pair(words[i]);
    return words;
  }

  FA_DEVICE bool exact() const {
    return narrowed_exactly(least.x, most.x) && narrowed_exactly(least.y, most.y);
  }

  // All words so far are checked here: later ones may have their registers.
  FA_DEVICE void pin() { least = here(least), most = here(most); }

 private:
  FA_DEVICE uint32_t pair(uint32_t bits) {
    const u16x2 below = __builtin_bit_cast(u16x2, bits & 0x7fff7fff) - static_cast<uint16_t>(1);
    least = __builtin_elementwise_min(least, below);
    most = __builtin_elementwise_max(most, __builtin_bit_cast(s16x2, below));
    const uint32_t scaled = bits + kNarrowScale * 0x00800080;
    return __builtin_bit_cast(uint32_t,
                              __builtin_amdgcn_cvt_pkrtz(__builtin_bit_cast(float, scaled << 16),
                                                         __builtin_bit_cast(float, scaled & 0xffff0000)));
  }
};

}  // namespace fa
