// Transcendentals. The hardware's are within 1 ulp. These are computed in double and rounded once, well
// within this limit. As on the hardware, f32 exp/log/rcp/rsq/sqrt take denormal inputs as zero and flush
// denormal results to zero. The compiler emits its own scaling around them. So a kernel relying on denormals
// there fails here too.
#pragma once
#include "types.hpp"

namespace emu {
inline f32 flush(f32 x) { return std::fabs(x) < 0x1p-126f ? bits<f32>(bits<u32>(x) & 0x80000000u) : x; }

// A half as a float: a denormal is zero.
inline f32 flush_half(f32 x) { return std::fabs(x) < 0x1p-14f ? bits<f32>(bits<u32>(x) & 0x80000000u) : x; }

inline f64 pow2i(i64 e) { return bits<f64>(static_cast<u64>(e + 1023) << 52); }

inline f32 exp2_f32(f32 x) {
  bool lo = x < -126.0f, hi = x >= 128.0f, nan = x != x;
  f64 c = nan || lo || hi ? 0.0 : static_cast<f64>(x);
  f64 n = std::nearbyint(c), t = (c - n) * 0.6931471805599453094;
  // Taylor series of 2^(x - n), |t| < 0.35: the first term left out is below 2^-37 of the value.
  f64 p = 1.0 / 362880;
  p = __builtin_fma(p, t, 1.0 / 40320);
  p = __builtin_fma(p, t, 1.0 / 5040);
  p = __builtin_fma(p, t, 1.0 / 720);
  p = __builtin_fma(p, t, 1.0 / 120);
  p = __builtin_fma(p, t, 1.0 / 24);
  p = __builtin_fma(p, t, 1.0 / 6);
  p = __builtin_fma(p, t, 0.5);
  p = __builtin_fma(p, t, 1.0);
  p = __builtin_fma(p, t, 1.0);
  f32 r = static_cast<f32>(p * pow2i(static_cast<i32>(n)));
  r = lo ? 0.0f : r;
  r = hi ? HUGE_VALF : r;
  return nan ? x + x : r;
}

inline f32 log2_f32(f32 x) {
  bool zero = std::fabs(x) < 0x1p-126f, bad = x < 0 && !zero, odd = !(x < HUGE_VALF);
  f64 d = zero || bad || odd ? 1.0 : static_cast<f64>(x);
  u64 u = bits<u64>(d);
  i32 e = static_cast<i32>((u >> 52) & 0x7ff) - 1023;
  f64 m = bits<f64>((u & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  bool up = m > 1.4142135623730951;
  m = up ? m * 0.5 : m;
  e = up ? e + 1 : e;
  f64 s = (m - 1) / (m + 1), q = s * s;
  f64 p = 1.0 / 19;
  p = p * q + 1.0 / 17;
  p = p * q + 1.0 / 15;
  p = p * q + 1.0 / 13;
  p = p * q + 1.0 / 11;
  p = p * q + 1.0 / 9;
  p = p * q + 1.0 / 7;
  p = p * q + 1.0 / 5;
  p = p * q + 1.0 / 3;
  p = p * q + 1.0;
  f32 r = static_cast<f32>(static_cast<f64>(e) + 2 * s * p * 1.4426950408889634074);
  r = zero ? -HUGE_VALF : r;
  r = bad ? bits<f32>(0x7fc00000u) : r;
  return odd && !bad && !zero ? x + x : r;
}

inline f32 rcp_f32(f32 x) { return flush(1.0f / flush(x)); }
inline f32 sqrt_f32(f32 x) { return std::sqrt(flush(x)); }
inline f32 rsq_f32(f32 x) { return static_cast<f32>(1.0 / std::sqrt(static_cast<f64>(flush(x)))); }

// v_sin/v_cos take revolutions. Quarters of a turn are exact. x is within -0.5..0.5 here.
inline f64 sin_turn(f64 x) {
  f64 folded = x > 0.25 ? 0.5 - x : x < -0.25 ? -0.5 - x : x;
  return std::sin(folded * 6.283185307179586477);
}
inline f32 sin_rev(f64 x) { return static_cast<f32>(x == 0 ? x : sin_turn(x - std::nearbyint(x))); }
inline f32 cos_rev(f64 x) { return static_cast<f32>(sin_turn(0.25 - std::fabs(x - std::nearbyint(x)))); }

// The larger/smaller of two, as v_max/v_min. A quiet NaN loses against a number, and -0 < +0. A signalling
// NaN is quieted, and wins when the kernel runs in IEEE mode.
template <class F, class U, U kExp, U kQuiet>
inline F pick(F a, F b, bool max, bool ieee) {
  U ua = bits<U>(a), ub = bits<U>(b), sign = static_cast<U>(~(static_cast<U>(~U{0}) >> 1));
  auto snan = [&](U u) { return (u & ~sign) > kExp && !(u & kQuiet); };
  F zero = bits<F>(max ? static_cast<U>(ua & ub) : static_cast<U>(ua | ub));
  F r = max ? (a > b ? a : b) : (a < b ? a : b);
  r = a == b ? zero : r;
  r = b != b ? bits<F>(static_cast<U>(a != a ? ua | kQuiet : ua)) : (a != a ? b : r);
  if (ieee) {
    r = snan(ub) ? bits<F>(static_cast<U>(ub | kQuiet)) : r;
    r = snan(ua) ? bits<F>(static_cast<U>(ua | kQuiet)) : r;
  }
  return r;
}
inline f32 pick_f32(f32 a, f32 b, bool max, bool ieee) {
  return pick<f32, u32, 0x7f800000u, 0x00400000u>(a, b, max, ieee);
}
inline f64 pick_f64(f64 a, f64 b, bool max, bool ieee) {
  return pick<f64, u64, 0x7ff0000000000000ull, 0x0008000000000000ull>(a, b, max, ieee);
}
// min/max on half bits, to keep signalling NaNs until here.
inline u32 pick_f16(u32 a, u32 b, bool max, bool ieee) {
  auto nan = [](u32 x) { return (x & 0x7fffu) > 0x7c00u; };
  auto snan = [&](u32 x) { return nan(x) && !(x & 0x200u); };
  auto key = [](u32 x) {
    return x & 0x8000u ? -static_cast<i32>(x & 0x7fffu) - 1 : static_cast<i32>(x);
  };  // -0 < +0
  u32 r = (key(a) > key(b)) == max ? a : b;
  r = nan(b) ? (nan(a) ? a | 0x200u : a) : nan(a) ? b : r;
  if (ieee) {
    r = snan(b) ? b | 0x200u : r;
    r = snan(a) ? a | 0x200u : r;
  }
  return r;
}
inline f32 med3_f32(f32 a, f32 b, f32 c, bool ieee) {
  if (a != a || b != b || c != c) return pick_f32(pick_f32(a, b, false, ieee), c, false, ieee);
  f32 hi = pick_f32(a, b, true, ieee), lo = pick_f32(a, b, false, ieee);
  return pick_f32(lo, pick_f32(hi, c, false, ieee), true, ieee);
}
template <class T>
inline T med3_int(T a, T b, T c) {
  T hi = a > b ? a : b, lo = a > b ? b : a, m = hi < c ? hi : c;
  return lo > m ? lo : m;
}

// float to integer: truncation, saturation, NaN is 0.
inline i32 to_i32(f64 x) {
  return x != x ? 0 : x >= 2147483647.0 ? 2147483647 : x <= -2147483648.0 ? INT32_MIN : static_cast<i32>(x);
}
inline u32 to_u32(f64 x) { return !(x > 0) ? 0u : x >= 4294967295.0 ? 0xffffffffu : static_cast<u32>(x); }

inline f32 ldexp_f32(f32 x, i32 e) { return std::ldexp(x, e > 600 ? 600 : e < -600 ? -600 : e); }
inline f64 ldexp_f64(f64 x, i32 e) { return std::ldexp(x, e > 5000 ? 5000 : e < -5000 ? -5000 : e); }
inline f32 fract_f32(f32 x) {
  f32 r = x - std::floor(x);
  return r >= 1.0f ? bits<f32>(0x3f7fffffu) : r;
}

template <class U>
inline u32 class_bits(U u, int mant, U exp_mask) {
  U sign_bit = static_cast<U>(~(static_cast<U>(~U{0}) >> 1));
  bool neg = u & sign_bit;
  U mag = u & static_cast<U>(~sign_bit), e = mag & exp_mask, m = mag & static_cast<U>(~exp_mask);
  if (e == exp_mask) {
    if (m) return (m >> (mant - 1)) & 1 ? 2u : 1u;
    return neg ? 4u : 0x200u;
  }
  if (e) return neg ? 8u : 0x100u;
  if (m) return neg ? 0x10u : 0x80u;
  return neg ? 0x20u : 0x40u;
}
inline u32 class_f32(u32 u) { return class_bits<u32>(u, 23, 0x7f800000u); }
inline u32 class_f64(u64 u) { return class_bits<u64>(u, 52, 0x7ff0000000000000ull); }
inline u32 class_f16(u32 u) { return class_bits<u32>(((u & 0x8000u) << 16) | (u & 0x7fffu), 10, 0x7c00u); }
}  // namespace emu
