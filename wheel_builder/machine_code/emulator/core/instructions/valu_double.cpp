// Double precision VALU instructions.
#include "code/ops.hpp"

namespace emu {
namespace {
i32 exponent(f64 x) { return static_cast<i32>(bits<u64>(x) >> 52 & 0x7ff); }
bool denormal(f64 x) { return x != 0 && std::fabs(x) < 0x1p-1022; }
f64 fma64(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }

// As for f32 (valu_float.cpp), with the thresholds of double.
f64 div_scale(f64 x, f64 den, f64 num, bool& flag) {
  flag = false;
  if (num == 0 || den == 0) return bits<f64>(0x7ff8000000000000ull);
  bool is_den = bits<u64>(x) == bits<u64>(den), is_num = bits<u64>(x) == bits<u64>(num);
  bool tiny_rcp = denormal(1.0 / den), tiny_q = denormal(num / den);
  if (exponent(num) - exponent(den) >= 768) {
    flag = true;
    return is_den ? ldexp_f64(x, 128) : x;
  }
  if (denormal(den)) return ldexp_f64(x, 128);
  if (tiny_rcp && tiny_q) {
    flag = true;
    return is_den ? ldexp_f64(x, -128) : x;
  }
  if (tiny_rcp) return ldexp_f64(x, -128);
  if (tiny_q) {
    flag = true;
    return is_num ? ldexp_f64(x, 128) : x;
  }
  if (exponent(num) <= 53) return ldexp_f64(x, 128);
  return x;
}
void h_div_scale_f64(Wave& w, const Inst& in) {
  alignas(64) f64 ta[kLanes], tb[kLanes], tc[kLanes], d[kLanes];
  const f64 *a = F64::load(w, in.src[0], ta), *b = F64::load(w, in.src[1], tb),
            *c = F64::load(w, in.src[2], tc);
  u64 mask = 0;
  for (u32 i = 0; i < w.n; ++i) {
    bool flag;
    d[i] = div_scale(a[i], b[i], c[i], flag);
    mask |= static_cast<u64>(flag) << i;
  }
  F64::store(w, in, d);
  write_mask(w, in.dst[1], mask & w.exec);
}
void h_div_fmas_f64(Wave& w, const Inst& in) {
  alignas(64) f64 ta[kLanes], tb[kLanes], tc[kLanes], d[kLanes];
  const f64 *a = F64::load(w, in.src[0], ta), *b = F64::load(w, in.src[1], tb),
            *c = F64::load(w, in.src[2], tc);
  u64 vcc = w.s[kVcc] | (w.n == 64 ? static_cast<u64>(w.s[kVcc + 1]) << 32 : 0);
  for (u32 i = 0; i < w.n; ++i) {
    f64 r = fma64(a[i], b[i], c[i]);
    d[i] = vcc >> i & 1 ? ldexp_f64(r, exponent(c[i]) > 1023 ? 128 : -128) : r;
  }
  F64::store(w, in, d);
}
f64 div_fixup_f64(f64 q, f64 den, f64 num) {
  u64 sign = (bits<u64>(den) ^ bits<u64>(num)) & 1ull << 63, inf = 0x7ff0000000000000ull;
  if (num != num) return bits<f64>(bits<u64>(num) | 1ull << 51);
  if (den != den) return bits<f64>(bits<u64>(den) | 1ull << 51);
  bool inf_num = std::isinf(num), inf_den = std::isinf(den);
  if ((num == 0 && den == 0) || (inf_num && inf_den)) return bits<f64>(0xfff8000000000000ull);
  if (den == 0 || inf_num) return bits<f64>(sign | inf);
  if (inf_den || num == 0) return bits<f64>(sign);
  if (exponent(num) - exponent(den) < -1075) return bits<f64>(sign);
  if (exponent(den) == 2047) return bits<f64>(sign | inf);
  return bits<f64>((bits<u64>(q) & ~(1ull << 63)) | sign);
}
f64 mant(f64 x) {
  int e;
  return std::isfinite(x) ? std::frexp(x, &e) : x;
}
i32 expo(f64 x) {
  int e = 0;
  if (std::isfinite(x)) std::frexp(x, &e);
  return e;
}
f64 fract(f64 x) {
  f64 r = x - std::floor(x);
  return r >= 1.0 ? bits<f64>(0x3fefffffffffffffull) : r;
}
}  // namespace

void add_valu_double(Ops& t) {
  V2(v_add_f64, F64, F64, F64, a + b);
  V2(v_mul_f64, F64, F64, F64, a * b);
  V3(v_fma_f64, F64, F64, F64, F64, fma64(a, b, c));
  V3F(v_fmac_f64, valu, F64, F64, F64, F64, kDstIsSrc, fma64(a, b, c));
  V2(v_max_f64, F64, F64, F64, pick_f64(a, b, true, w.ieee));
  V2(v_min_f64, F64, F64, F64, pick_f64(a, b, false, w.ieee));
  V2(v_max_num_f64, F64, F64, F64, pick_f64(a, b, true, false));
  V2(v_min_num_f64, F64, F64, F64, pick_f64(a, b, false, false));
  V1(v_trunc_f64, F64, F64, std::trunc(a));
  V1(v_ceil_f64, F64, F64, std::ceil(a));
  V1(v_floor_f64, F64, F64, std::floor(a));
  V1(v_rndne_f64, F64, F64, std::nearbyint(a));
  V1(v_fract_f64, F64, F64, fract(a));
  V2(v_ldexp_f64, F64, F64, I32, ldexp_f64(a, b));
  V1(v_frexp_mant_f64, F64, F64, mant(a));
  V1(v_frexp_exp_i32_f64, I32, F64, expo(a));
  V1F(v_rcp_f64, trans, F64, F64, 0, 1.0 / a);
  V1F(v_rsq_f64, trans, F64, F64, 0, 1.0 / std::sqrt(a));
  V1F(v_sqrt_f64, trans, F64, F64, 0, std::sqrt(a));
  t.add({"v_div_scale_f64", h_div_scale_f64, Class::valu, 2, {Type::f64}, 0, nullptr});
  t.add({"v_div_fmas_f64", h_div_fmas_f64, Class::valu, 1, {Type::f64}, kReadsVcc, nullptr});
  V3(v_div_fixup_f64, F64, F64, F64, F64, div_fixup_f64(a, b, c));
  V1(v_cvt_f64_f32, F64, F32, static_cast<f64>(a));
  V1(v_cvt_f32_f64, F32, F64, static_cast<f32>(a));
  V1(v_cvt_f64_i32, F64, I32, static_cast<f64>(a));
  V1(v_cvt_f64_u32, F64, U32, static_cast<f64>(a));
  V1(v_cvt_i32_f64, I32, F64, to_i32(a));
  V1(v_cvt_u32_f64, U32, F64, to_u32(a));
}
}  // namespace emu
