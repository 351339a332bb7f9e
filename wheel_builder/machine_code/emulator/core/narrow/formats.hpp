// Floats of 8 bits: FP8 (E4M3) and BF8 (E5M2), each in the two formats of fa::Fp8. Tables: CDNA3 ISA 7.2,
// CDNA4 ISA 7.3, RDNA4 ISA 7.6.2.
#pragma once
#include <array>

#include "device/arch/traits.hpp"
#include "types.hpp"

namespace emu {
enum class Small : u8 { fp8_, bf8_ };

struct SmallFormat {
  u32 mantissa;  // bits
  i32 bias;
  u32 largest;   // codes, without the sign
  u32 overflow;  // beyond the largest number, with the sign
  u32 nan;       // of a NaN
  bool fnuz;     // 0x80 is the only NaN, and zero has no sign
};
// What a NaN and a number too large become is OCP's as measured on a gfx1201 (ROCm's rocjitsu, conversion.h).
constexpr SmallFormat small_format(fa::Fp8 family, Small which) {
  const bool fp8 = which == Small::fp8_;
  if (family == fa::Fp8::fnuz) return {fp8 ? 3u : 2u, fp8 ? 8 : 16, 0x7f, 0x80, 0x80, true};
  return {fp8 ? 3u : 2u, fp8 ? 7 : 15, fp8 ? 0x7eu : 0x7bu, fp8 ? 0x7fu : 0x7cu, fp8 ? 0xffu : 0xfeu, false};
}

// The number of a code. All NaNs are one.
inline f32 small_to_float(u32 code, const SmallFormat& f) {
  constexpr u32 kNan = 0xffc00000u, kInfinity = 0x7f800000u;
  const u32 size = code & 0x7f, sign = (code & 0x80) << 24;
  if (f.fnuz && code == 0x80) return bits<f32>(kNan);
  if (size > f.largest) return bits<f32>(f.mantissa == 2 && size == f.overflow ? sign | kInfinity : kNan);
  const i32 exponent = static_cast<i32>(size >> f.mantissa);
  const u32 fraction = size & ((1u << f.mantissa) - 1),
            whole = exponent ? fraction | 1u << f.mantissa : fraction;
  const f32 x =
      std::ldexp(static_cast<f32>(whole), (exponent ? exponent : 1) - f.bias - static_cast<i32>(f.mantissa));
  return bits<f32>(bits<u32>(x) | sign);
}
using SmallTable = std::array<f32, 256>;
inline const SmallTable& small_table(fa::Fp8 family, Small which) {
  static const auto all = [] {
    std::array<SmallTable, 4> t;
    for (u32 k = 0; k < 4; ++k)
      for (u32 code = 0; code < 256; ++code)
        t[k][code] = small_to_float(
            code, small_format(k & 2 ? fa::Fp8::fnuz : fa::Fp8::ocp, static_cast<Small>(k & 1)));
    return t;
  }();
  return all[(family == fa::Fp8::fnuz ? 2u : 0u) | static_cast<u32>(which)];
}

// What an infinity becomes under FP16_OVFL: CDNA's manuals say the largest number. RDNA 4's says so, too, but
// a gfx1201 keeps it.
enum class Overflow : u8 { is_told, saturates, saturates_infinities };

// The code of a number that the format has, up to its range.
inline u32 small_code(f32 rounded, bool infinite, u32 sign, const SmallFormat& f, Overflow o) {
  const u32 u = bits<u32>(rounded), least = static_cast<u32>(128 - f.bias) << 23;
  const u32 normal = (u >> (23 - f.mantissa)) - (static_cast<u32>(127 - f.bias) << f.mantissa);
  const f32 units = bits<f32>(static_cast<u32>(126 + f.bias + static_cast<i32>(f.mantissa)) << 23);
  const u32 denormal = static_cast<u32>(static_cast<i32>(u < least ? rounded * units : 0.0f));
  u32 code = u < least ? denormal : normal;
  const bool over = infinite || u >= 0x7f800000u || code > f.largest;
  const bool saturates = o == Overflow::saturates_infinities || (o == Overflow::saturates && !infinite);
  code = !over ? code : saturates ? f.largest : f.overflow;
  return f.fnuz && (code == 0 || code == 0x80) ? code : code | sign;
}

// `scaled` rounded to nearest, ties to even. It is `given` times a power of two: infinite or NaN if that is,
// and also infinite beyond the range of f32, where it is beyond that of the format, too.
inline u32 float_to_small(f32 scaled, f32 given, const SmallFormat& f, Overflow o) {
  const u32 size = bits<u32>(scaled) & 0x7fffffffu, sign = bits<u32>(scaled) >> 24 & 0x80;
  const i32 exponent = static_cast<i32>(size >> 23), least = 128 - f.bias;
  const i32 binade = exponent < least ? least : exponent > 200 ? 200 : exponent;
  const f32 step = bits<f32>(static_cast<u32>(binade - static_cast<i32>(f.mantissa) + 23) << 23);
  const f32 rounded = exponent > 200 ? bits<f32>(size) : (bits<f32>(size) + step) - step;
  const bool infinite = (bits<u32>(given) & 0x7fffffffu) == 0x7f800000u;
  const u32 code = small_code(rounded, infinite, sign, f, o);
  return given != given ? f.nan : code;
}

// Stochastic rounding: random bits are added below the kept ones, the rest is cut off. A number on its way to
// a denormal is first cut to the precision of normal ones (as measured on a gfx1201; assumed for CDNA).
inline u32 float_to_small_random(f32 x, u32 random, const SmallFormat& f, Overflow o) {
  const u32 u = bits<u32>(x), size = u & 0x7fffffffu, sign = u >> 24 & 0x80, cut = 23 - f.mantissa;
  if (x != x) return f.nan;
  if (size >= 0x7f800000u) return small_code(bits<f32>(size), true, sign, f, o);
  const i32 exponent = static_cast<i32>(size >> 23), least = 128 - f.bias;
  const i32 more = exponent < least ? least - (exponent ? exponent : 1) : 0;
  const u32 whole = (size & 0x7fffffu) | (exponent ? 0x800000u : 0);
  const u32 kept = ((more > 31 ? 0 : whole >> more) + (random >> (32 - cut))) >> cut;
  const i32 binade = exponent < least ? least : exponent;
  return small_code(std::ldexp(static_cast<f32>(kept), binade - 127 - static_cast<i32>(f.mantissa)), false,
                    sign, f, o);
}
}  // namespace emu
