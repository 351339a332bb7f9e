// Numbers in 8 bits, of caches: encoding and decoding in fp32, by the same operations on all archs. The
// package's reference/codes.py has the same rules.
#pragma once

#include "device/arch/device.hpp"
#include "device/call/params.hpp"

namespace fa {

// Rounds numbers to codes. All members are wave-uniform.
struct Encoder {
  static constexpr uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  static constexpr uint32_t kSign = 0x80;

  float largest;
  uint32_t normal;    // bits of the smallest number in exponent form
  float unit;         // 2^23 times the step of the smaller numbers: a sum with it ends in their code
  uint32_t dropped;   // bits of fp32's mantissa
  uint32_t exponent;  // subtracted from the bits that stay
  uint32_t no_number;
  bool is_integer;  // all numbers are small, and the sign is two's complement

  // Selects, because branches of a switch leave code that never runs.
  FA_DEVICE static Encoder of(int32_t format) {
    const auto is = [&](CodeFormat one) { return format == static_cast<int32_t>(one); };
    const bool halved = is(CodeFormat::e4m3fnuz), is_e5m2 = is(CodeFormat::e5m2);
    const bool is_integer = is(CodeFormat::int8);
    const uint32_t mantissa = is_e5m2 ? 2 : 3, bias = is_e5m2 ? 15 : halved ? 8 : 7;
    const float largest = is_integer ? 127.0f : is_e5m2 ? 57344.0f : halved ? 240.0f : 448.0f;
    const uint32_t power = is_integer ? 23 : 24 - bias - mantissa;
    return {largest,
            is_integer ? kInfinity : (128 - bias) << 23,
            __builtin_bit_cast(float, (127 + power) << 23),
            23 - mantissa,
            (127 - bias) << mantissa,
            is_integer ? 0u
            : halved   ? 0x80u
                       : 0x7fu,
            is_integer};
  }

  // The code of value / descale.
  FA_DEVICE uint32_t code(float value, float descale) const {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t quotient = __builtin_bit_cast(uint32_t, value / descale) & kMagnitude;
    const uint32_t most = __builtin_bit_cast(uint32_t, largest);
    const uint32_t magnitude = quotient < most ? quotient : most;  // most, too, if there is no quotient
    const float small = __builtin_bit_cast(float, magnitude) + unit;
    const uint32_t even = magnitude >> dropped & 1, half = (1u << dropped >> 1) - 1;
    const uint32_t rounded = magnitude < normal
                                 ? __builtin_bit_cast(uint32_t, small) - __builtin_bit_cast(uint32_t, unit)
                                 : ((magnitude + half + even) >> dropped) - exponent;
    const bool negative = static_cast<int32_t>(bits ^ __builtin_bit_cast(uint32_t, descale)) < 0;
    const uint32_t minus = is_integer ? 2 * kSign - rounded : kSign + rounded;
    const uint32_t found = negative && rounded != 0 ? minus : rounded;
    return (bits & kMagnitude) > kInfinity ? no_number : found;
  }
};

// The numbers of codes, exactly. All members are wave-uniform.
struct Decoder {
  uint32_t shift;   // of a magnitude into the place of fp16's
  float factor;     // from fp16's exponent bias
  uint32_t looked;  // bits that tell codes without a number
  uint32_t no_number;

  FA_DEVICE static Decoder of(int32_t format) {
    const auto is = [&](CodeFormat one) { return format == static_cast<int32_t>(one); };
    const bool halved = is(CodeFormat::e4m3fnuz), is_e5m2 = is(CodeFormat::e5m2);
    // e5m2 is the upper half of fp16, whose NaN stays NaN.
    return {is_e5m2 ? 8u : 7u,
            is_e5m2  ? 1.0f
            : halved ? 128.0f
                     : 256.0f,
            is_e5m2  ? 0u
            : halved ? 0xffu
                     : 0x7fu,
            is_e5m2  ? 1u
            : halved ? 0x80u
                     : 0x7fu};
  }

  FA_DEVICE float number(uint32_t code) const {
    const uint32_t half = (code & 0x80) << 8 | (code & 0x7f) << shift;
    const float found =
        static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(half))) * factor;
    return (code & looked) == no_number ? __builtin_nanf("") : found;
  }
};

}  // namespace fa
