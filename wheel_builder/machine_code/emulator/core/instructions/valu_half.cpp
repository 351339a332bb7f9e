// Half precision VALU instructions. Computed in float and rounded once: exact for +, -, *, / and sqrt. FMA
// goes through a sum rounded to odd.
#include "code/ops.hpp"

namespace emu {
namespace {
[[gnu::always_inline]] inline u32 minmax3(u32 a, u32 b, u32 c, bool max, bool ieee) {
  return pick_f16(pick_f16(a, b, max, ieee), c, max, ieee);
}
u32 med3(u32 a, u32 b, u32 c, bool ieee) {
  auto nan = [](u32 x) { return (x & 0x7fffu) > 0x7c00u; };
  if (nan(a) || nan(b) || nan(c)) return minmax3(a, b, c, false, ieee);
  u32 hi = pick_f16(a, b, true, ieee), lo = pick_f16(a, b, false, ieee);
  return pick_f16(lo, pick_f16(hi, c, false, ieee), true, ieee);
}
f32 div_fixup_f16(f32 q, f32 den, f32 num) {
  bool neg = std::signbit(den) != std::signbit(num);
  f32 sign = neg ? -1.0f : 1.0f;
  if (num != num) return num;
  if (den != den) return den;
  bool inf_num = std::isinf(num), inf_den = std::isinf(den);
  if ((num == 0 && den == 0) || (inf_num && inf_den)) return bits<f32>(0xffc00000u);
  if (den == 0 || inf_num) return sign * HUGE_VALF;
  if (inf_den || num == 0) return std::copysign(0.0f, sign);
  return std::copysign(std::fabs(q), sign);
}
f32 mant(f32 x) {
  int e;
  return std::isfinite(x) ? std::frexp(x, &e) : x;
}
i32 expo(f32 x) {
  int e = 0;
  if (std::isfinite(x)) std::frexp(x, &e);
  return e;
}
f32 fract(f32 x) {  // infinities and NaN give NaN
  f32 r = x - std::floor(x), below_one = half_to_float(0x3bff);
  return r > below_one ? below_one : r;
}
i32 sat16(f32 x) {
  return x != x ? 0 : x >= 32767.0f ? 32767 : x <= -32768.0f ? -32768 : static_cast<i32>(x);
}
u32 satu16(f32 x) { return !(x > 0) ? 0u : x >= 65535.0f ? 65535u : static_cast<u32>(x); }
}  // namespace

void add_valu_half(Ops& t) {
  constexpr u32 k = kStore16, kk = kStore16 | kKeepHigh, unsure = kNotSaturated;
  V2F(v_add_f16, valu, F16, F16, F16, k, a + b);
  V2F(v_sub_f16, valu, F16, F16, F16, k, a - b);
  V2F(v_subrev_f16, valu, F16, F16, F16, k, b - a);
  V2F(v_mul_f16, valu, F16, F16, F16, k, a * b);
  V3F(v_fma_f16, valu, F16, F16, F16, F16, kk, half_fma_odd(a, b, c));
  V3F(v_fmac_f16, valu, F16, F16, F16, F16, kk | kDstIsSrc, half_fma_odd(a, b, c));
  V3F(v_fmamk_f16, valu, F16, F16, F16, F16, kk, half_fma_odd(a, b, c));
  V3F(v_fmaak_f16, valu, F16, F16, F16, F16, kk, half_fma_odd(a, b, c));
  V3F(v_mad_f16, valu, F16, F16, F16, F16, kk | unsure, half_to_float(float_to_half(a * b)) + c);
  V3F(v_mac_f16, valu, F16, F16, F16, F16, kk | unsure | kDstIsSrc, half_to_float(float_to_half(a * b)) + c);
  V2F(v_max_f16, valu, H16, H16, H16, k, pick_f16(a, b, true, w.ieee));
  V2F(v_min_f16, valu, H16, H16, H16, k, pick_f16(a, b, false, w.ieee));
  V3F(v_max3_f16, valu, H16, H16, H16, H16, kk, minmax3(a, b, c, true, w.ieee));
  V3F(v_min3_f16, valu, H16, H16, H16, H16, kk, minmax3(a, b, c, false, w.ieee));
  V3F(v_med3_f16, valu, H16, H16, H16, H16, kk, med3(a, b, c, w.ieee));
  V3F(v_maxmin_f16, valu, H16, H16, H16, H16, kk, pick_f16(pick_f16(a, b, true, w.ieee), c, false, w.ieee));
  V3F(v_minmax_f16, valu, H16, H16, H16, H16, kk, pick_f16(pick_f16(a, b, false, w.ieee), c, true, w.ieee));
  V2F(v_max_num_f16, valu, H16, H16, H16, k, pick_f16(a, b, true, false));
  V2F(v_min_num_f16, valu, H16, H16, H16, k, pick_f16(a, b, false, false));
  V3F(v_max3_num_f16, valu, H16, H16, H16, H16, kk, minmax3(a, b, c, true, false));
  V3F(v_min3_num_f16, valu, H16, H16, H16, H16, kk, minmax3(a, b, c, false, false));
  V3F(v_med3_num_f16, valu, H16, H16, H16, H16, kk, med3(a, b, c, false));
  V3F(v_maxmin_num_f16, valu, H16, H16, H16, H16, kk, pick_f16(pick_f16(a, b, true, false), c, false, false));
  V3F(v_minmax_num_f16, valu, H16, H16, H16, H16, kk, pick_f16(pick_f16(a, b, false, false), c, true, false));
  V1F(v_trunc_f16, valu, F16, F16, k, std::trunc(a));
  V1F(v_ceil_f16, valu, F16, F16, k, std::ceil(a));
  V1F(v_floor_f16, valu, F16, F16, k, std::floor(a));
  V1F(v_rndne_f16, valu, F16, F16, k, std::nearbyint(a));
  V1F(v_fract_f16, valu, F16, F16, k, fract(a));
  V2F(v_ldexp_f16, valu, F16, F16, I16, k | unsure, ldexp_f32(a, b));
  V1F(v_frexp_mant_f16, valu, F16, F16, k, mant(a));
  V1F(v_frexp_exp_i16_f16, valu, I16, F16, k, expo(a));
  V3F(v_div_fixup_f16, valu, F16, F16, F16, F16, kk | unsure, div_fixup_f16(a, b, c));
  V1F(v_exp_f16, trans, F16, F16, k | unsure, static_cast<f32>(std::exp2(static_cast<f64>(a))));
  V1F(v_log_f16, trans, F16, F16, k | unsure, static_cast<f32>(std::log2(static_cast<f64>(a))));
  V1F(v_rcp_f16, trans, F16, F16, k | unsure, 1.0f / a);
  V1F(v_rsq_f16, trans, F16, F16, k | unsure, static_cast<f32>(1.0 / std::sqrt(static_cast<f64>(a))));
  V1F(v_sqrt_f16, trans, F16, F16, k | unsure, std::sqrt(a));
  V1F(v_sin_f16, trans, F16, F16, k, sin_rev(a));
  V1F(v_cos_f16, trans, F16, F16, k, cos_rev(a));
  V1F(v_cvt_f16_u16, valu, F16, U16, k, static_cast<f32>(a));
  V1F(v_cvt_f16_i16, valu, F16, I16, k, static_cast<f32>(a));
  V1F(v_cvt_u16_f16, valu, U16, F16, k, satu16(a));
  V1F(v_cvt_i16_f16, valu, I16, F16, k, sat16(a));
  V2(v_pack_b32_f16, U32, H16, H16, a | b << 16).follows(flow::moves<0b11>);
}
}  // namespace emu
