// Single precision VALU instructions and conversions. Arithmetic is the host's IEEE arithmetic (round to
// nearest even, denormals kept). FMA is truly fused.
#include <algorithm>

#include "code/ops.hpp"

namespace emu {
namespace {
constexpr u32 kNan = 0x7fc00000u;

f32 fma32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
f32 legacy_mul(f32 a, f32 b) { return a == 0.0f || b == 0.0f ? 0.0f : a * b; }
// v_mad/v_mac on gfx9: unfused, denormals flushed.
f32 mad(f32 a, f32 b, f32 c) { return flush(flush(flush(a) * flush(b)) + flush(c)); }
i32 exponent(f32 x) { return static_cast<i32>(bits<u32>(x) >> 23 & 0xff); }
bool denormal(f32 x) { return x != 0.0f && std::fabs(x) < 0x1p-126f; }

// Scales numerator or denominator of a division, so that every step of the expansion stays in range. The ISA
// text gives "1/S1 is denormal" in a precision where this is impossible. The sound reading (scale a huge
// denominator down) is used.
f32 div_scale(f32 x, f32 den, f32 num, bool& flag) {
  flag = false;
  if (num == 0.0f || den == 0.0f) return bits<f32>(kNan);
  bool is_den = bits<u32>(x) == bits<u32>(den), is_num = bits<u32>(x) == bits<u32>(num);
  bool tiny_rcp = denormal(static_cast<f32>(1.0 / static_cast<f64>(den)));
  f64 q = static_cast<f64>(num) / static_cast<f64>(den);
  bool tiny_q = q != 0 && std::fabs(q) < 0x1p-126;
  if (exponent(num) - exponent(den) >= 96) {
    flag = true;
    return is_den ? ldexp_f32(x, 64) : x;
  }
  if (denormal(den)) return ldexp_f32(x, 64);
  if (tiny_rcp && tiny_q) {
    flag = true;
    return is_den ? ldexp_f32(x, -64) : x;
  }
  if (tiny_rcp) return ldexp_f32(x, -64);
  if (tiny_q) {
    flag = true;
    return is_num ? ldexp_f32(x, 64) : x;
  }
  if (exponent(num) <= 23) return ldexp_f32(x, 64);
  return x;
}
void h_div_scale_f32(Wave& w, const Inst& in) {
  alignas(64) f32 ta[kLanes], tb[kLanes], tc[kLanes], d[kLanes];
  const f32 *a = F32::load(w, in.src[0], ta), *b = F32::load(w, in.src[1], tb),
            *c = F32::load(w, in.src[2], tc);
  u64 mask = 0;
  for (u32 i = 0; i < w.n; ++i) {
    bool flag;
    d[i] = div_scale(a[i], b[i], c[i], flag);
    mask |= static_cast<u64>(flag) << i;
  }
  F32::store(w, in, d);
  write_mask(w, in.dst[1], mask & w.exec);
}
void h_div_fmas_f32(Wave& w, const Inst& in) {
  alignas(64) f32 ta[kLanes], tb[kLanes], tc[kLanes], d[kLanes];
  const f32 *a = F32::load(w, in.src[0], ta), *b = F32::load(w, in.src[1], tb),
            *c = F32::load(w, in.src[2], tc);
  u64 vcc = w.s[kVcc] | (w.n == 64 ? static_cast<u64>(w.s[kVcc + 1]) << 32 : 0);
  for (u32 i = 0; i < w.n; ++i) {
    f32 r = fma32(a[i], b[i], c[i]);
    d[i] = vcc >> i & 1 ? ldexp_f32(r, exponent(c[i]) > 127 ? 64 : -64) : r;
  }
  F32::store(w, in, d);
}
f32 div_fixup_f32(f32 q, f32 den, f32 num) {
  u32 sign = (bits<u32>(den) ^ bits<u32>(num)) & 0x80000000u;
  if (num != num) return bits<f32>(bits<u32>(num) | 0x00400000u);
  if (den != den) return bits<f32>(bits<u32>(den) | 0x00400000u);
  bool inf_num = std::isinf(num), inf_den = std::isinf(den);
  if ((num == 0.0f && den == 0.0f) || (inf_num && inf_den)) return bits<f32>(0xffc00000u);
  if (den == 0.0f || inf_num) return bits<f32>(sign | 0x7f800000u);
  if (inf_den || num == 0.0f) return bits<f32>(sign);
  if (exponent(num) - exponent(den) < -150) return bits<f32>(sign);
  if (exponent(den) == 255) return bits<f32>(sign | 0x7f800000u);
  return bits<f32>((bits<u32>(q) & 0x7fffffffu) | sign);
}
f32 frexp_mant(f32 x) {
  int e;
  return std::isfinite(x) ? std::frexp(x, &e) : x;
}
i32 frexp_exp(f32 x) {
  int e = 0;
  if (std::isfinite(x)) std::frexp(x, &e);
  return e;
}
[[gnu::always_inline]] inline f32 minmax3(f32 a, f32 b, f32 c, bool max, bool ieee) {
  return pick_f32(pick_f32(a, b, max, ieee), c, max, ieee);
}
u32 norm16(f32 x, bool sign) {
  if (x != x) return 0;
  f32 r = sign ? std::nearbyint(std::fmin(std::fmax(x, -1.0f), 1.0f) * 32767.0f)
               : std::nearbyint(std::fmin(std::fmax(x, 0.0f), 1.0f) * 65535.0f);
  return static_cast<u32>(static_cast<i32>(r)) & 0xffffu;
}

void add_float_arithmetic(Ops& t) {
  V2(v_add_f32, F32, F32, F32, a + b);
  V2(v_sub_f32, F32, F32, F32, a - b);
  V2(v_subrev_f32, F32, F32, F32, b - a);
  V2(v_mul_f32, F32, F32, F32, a * b);
  V2(v_mul_legacy_f32, F32, F32, F32, legacy_mul(a, b));
  V3(v_fma_f32, F32, F32, F32, F32, fma32(a, b, c));
  V3F(v_fmac_f32, valu, F32, F32, F32, F32, kDstIsSrc, fma32(a, b, c));
  V3(v_fmamk_f32, F32, F32, F32, F32, fma32(a, b, c));
  V3(v_fmaak_f32, F32, F32, F32, F32, fma32(a, b, c));
  V3(v_mad_f32, F32, F32, F32, F32, mad(a, b, c));
  V3F(v_mac_f32, valu, F32, F32, F32, F32, kDstIsSrc, mad(a, b, c));
  V3(v_madmk_f32, F32, F32, F32, F32, mad(a, b, c));
  V3(v_madak_f32, F32, F32, F32, F32, mad(a, b, c));
  V2(v_max_f32, F32, F32, F32, pick_f32(a, b, true, w.ieee));
  V2(v_min_f32, F32, F32, F32, pick_f32(a, b, false, w.ieee));
  V3(v_max3_f32, F32, F32, F32, F32, minmax3(a, b, c, true, w.ieee));
  V3(v_min3_f32, F32, F32, F32, F32, minmax3(a, b, c, false, w.ieee));
  V3(v_maxmin_f32, F32, F32, F32, F32, pick_f32(pick_f32(a, b, true, w.ieee), c, false, w.ieee));
  V3(v_minmax_f32, F32, F32, F32, F32, pick_f32(pick_f32(a, b, false, w.ieee), c, true, w.ieee));
  V3(v_med3_f32, F32, F32, F32, F32, med3_f32(a, b, c, w.ieee));
  // RDNA 4: a signalling NaN loses against a number like any other.
  V2(v_max_num_f32, F32, F32, F32, pick_f32(a, b, true, false));
  V2(v_min_num_f32, F32, F32, F32, pick_f32(a, b, false, false));
  V3(v_max3_num_f32, F32, F32, F32, F32, minmax3(a, b, c, true, false));
  V3(v_min3_num_f32, F32, F32, F32, F32, minmax3(a, b, c, false, false));
  V3(v_maxmin_num_f32, F32, F32, F32, F32, pick_f32(pick_f32(a, b, true, false), c, false, false));
  V3(v_minmax_num_f32, F32, F32, F32, F32, pick_f32(pick_f32(a, b, false, false), c, true, false));
  V3(v_med3_num_f32, F32, F32, F32, F32, med3_f32(a, b, c, false));
  V1(v_trunc_f32, F32, F32, std::trunc(a));
  V1(v_ceil_f32, F32, F32, std::ceil(a));
  V1(v_floor_f32, F32, F32, std::floor(a));
  V1(v_rndne_f32, F32, F32, std::nearbyint(a));
  V1(v_fract_f32, F32, F32, fract_f32(a));
  V2(v_ldexp_f32, F32, F32, I32, ldexp_f32(a, b));
  V1(v_frexp_mant_f32, F32, F32, frexp_mant(a));
  V1(v_frexp_exp_i32_f32, I32, F32, frexp_exp(a));
  t.add({"v_div_scale_f32", h_div_scale_f32, Class::valu, 2, {Type::f32}, 0, nullptr});
  t.add({"v_div_fmas_f32", h_div_fmas_f32, Class::valu, 1, {Type::f32}, kReadsVcc, nullptr});
  V3(v_div_fixup_f32, F32, F32, F32, F32, div_fixup_f32(a, b, c));
}

void add_transcendental(Ops& t) {
  V1F(v_exp_f32, trans, F32, F32, 0, exp2_f32(a));
  V1F(v_log_f32, trans, F32, F32, 0, log2_f32(a));
  V1F(v_rcp_f32, trans, F32, F32, 0, rcp_f32(a));
  V1F(v_rcp_iflag_f32, trans, F32, F32, 0, rcp_f32(a));
  V1F(v_rsq_f32, trans, F32, F32, 0, rsq_f32(a));
  V1F(v_sqrt_f32, trans, F32, F32, 0, sqrt_f32(a));
  V1F(v_sin_f32, trans, F32, F32, 0, sin_rev(a));
  V1F(v_cos_f32, trans, F32, F32, 0, cos_rev(a));
}

void add_conversions(Ops& t) {
  V1(v_cvt_f32_i32, F32, I32, static_cast<f32>(a));
  V1(v_cvt_f32_u32, F32, U32, static_cast<f32>(a));
  V1(v_cvt_i32_f32, I32, F32, to_i32(a));
  V1(v_cvt_u32_f32, U32, F32, to_u32(a));
  V1(v_cvt_rpi_i32_f32, I32, F32, to_i32(std::floor(static_cast<f64>(a) + 0.5)));
  V1(v_cvt_flr_i32_f32, I32, F32, to_i32(std::floor(a)));
  V1(v_cvt_f32_ubyte0, F32, U32, static_cast<f32>(a & 0xff));
  V1(v_cvt_f32_ubyte1, F32, U32, static_cast<f32>(a >> 8 & 0xff));
  V1(v_cvt_f32_ubyte2, F32, U32, static_cast<f32>(a >> 16 & 0xff));
  V1(v_cvt_f32_ubyte3, F32, U32, static_cast<f32>(a >> 24));
  V1(v_cvt_f32_f16, F32, F16, a);
  V1F(v_cvt_f16_f32, valu, F16, F32, kStore16, a);
  V1(v_cvt_f32_bf16, F32, U16, bf16_to_float(a));
  V2(v_cvt_pkrtz_f16_f32, U32, F32, F32, float_to_half_rtz(a) | float_to_half_rtz(b) << 16)
      .follows(flow::cvt_pair);
  V2(v_cvt_pk_f16_f32, U32, F32, F32, rounded_half(w, a) | rounded_half(w, b) << 16).follows(flow::cvt_pair);
  V2(v_cvt_pk_bf16_f32, U32, F32, F32, float_to_bf16(a) | float_to_bf16(b) << 16).follows(flow::cvt_pair);
  V2(v_cvt_pknorm_i16_f32, U32, F32, F32, norm16(a, true) | norm16(b, true) << 16).follows(flow::cvt_pair);
  V2(v_cvt_pknorm_u16_f32, U32, F32, F32, norm16(a, false) | norm16(b, false) << 16).follows(flow::cvt_pair);
  V2(v_cvt_pk_u16_u32, U32, U32, U32, std::min(a, 0xffffu) | std::min(b, 0xffffu) << 16)
      .follows(flow::cvt_pair);
  V2(v_cvt_pk_i16_i32, U32, I32, I32,
     (static_cast<u32>(std::max(-32768, std::min(32767, a))) & 0xffffu) |
         static_cast<u32>(std::max(-32768, std::min(32767, b))) << 16)
      .follows(flow::cvt_pair);
  V3(v_cvt_pk_u8_f32, U32, F32, U32, U32,
     (c & ~(0xffu << (8 * (b & 3)))) | static_cast<u32>(std::fmin(std::fmax(std::nearbyint(a), 0.0f), 255.0f))
                                           << (8 * (b & 3)));
}
}  // namespace

void add_valu_float(Ops& t) {
  add_float_arithmetic(t);
  add_transcendental(t);
  add_conversions(t);
  t.alias("v_cvt_nearest_i32_f32", "v_cvt_rpi_i32_f32");
  t.alias("v_cvt_floor_i32_f32", "v_cvt_flr_i32_f32");
  t.alias("v_cvt_pk_rtz_f16_f32", "v_cvt_pkrtz_f16_f32");
  t.alias("v_cvt_pk_norm_i16_f32", "v_cvt_pknorm_i16_f32");
  t.alias("v_cvt_pk_norm_u16_f32", "v_cvt_pknorm_u16_f32");
  t.alias("v_mul_dx9_zero_f32", "v_mul_legacy_f32");
}
}  // namespace emu
