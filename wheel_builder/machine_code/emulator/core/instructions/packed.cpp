// Packed (two results per lane), mixed precision and dot product instructions.
#include <algorithm>

#include "code/operand.hpp"
#include "code/ops.hpp"

namespace emu {
namespace {
// Half h (0: low result, 1: high result) of a packed operand, as 16 bits.
const u32* half_bits(const Wave& w, const Operand& o, int h, bool fp, u32* tmp) {
  alignas(64) u32 t[kLanes];
  const u32* p = read_raw(w, o, t);
  u32 shift = o.flags & (h ? kHighHi : kHigh) ? 16 : 0,
      flip = fp && o.flags & (h ? kNegHi : kNeg) ? 0x8000u : 0;
  lanes(w, [&](u32 i) { tmp[i] = (p[i] >> shift & 0xffffu) ^ flip; });
  return tmp;
}
const f32* half_float(const Wave& w, const Operand& o, int h, f32* tmp) {
  alignas(64) u32 t[kLanes];
  halves_to_floats(read_raw(w, o, t), tmp, static_cast<int>(w.n), o.flags & (h ? kHighHi : kHigh));
  if (o.flags & (h ? kNegHi : kNeg)) lanes(w, [&](u32 i) { tmp[i] = -tmp[i]; });
  return tmp;
}
// r = f(a, b, c) for both halves, in float, rounded once.
template <class F>
void packed_f16(Wave& w, const Inst& in, F f) {
  alignas(64) f32 a[kLanes], b[kLanes], c[kLanes] = {0}, d[kLanes];
  alignas(64) u32 out[2][kLanes];
  for (int h = 0; h < 2; ++h) {
    half_float(w, in.src[0], h, a);
    half_float(w, in.src[1], h, b);
    if (in.nsrc > 2) half_float(w, in.src[2], h, c);
    lanes(w, [&](u32 i) { d[i] = f(a[i], b[i], c[i]); });
    rounded_halves(w, d, out[h]);
    if (in.clamp) {
      halves_to_floats(out[h], d, static_cast<int>(w.n));
      lanes(w, [&](u32 i) { d[i] = modify(d[i], 0, true, w.dx10_clamp); });
      floats_to_halves(d, out[h], static_cast<int>(w.n));
    }
  }
  lanes(w, [&](u32 i) { out[0][i] |= out[1][i] << 16; });
  commit(w, in.dst[0], out[0]);
}
template <class F>
void packed_b16(Wave& w, const Inst& in, bool fp, F f) {
  alignas(64) u32 a[kLanes], b[kLanes], c[kLanes] = {0}, out[2][kLanes];
  for (int h = 0; h < 2; ++h) {
    half_bits(w, in.src[0], h, fp, a);
    half_bits(w, in.src[1], h, fp, b);
    if (in.nsrc > 2) half_bits(w, in.src[2], h, fp, c);
    lanes(w, [&](u32 i) { out[h][i] = f(a[i], b[i], c[i]) & 0xffffu; });
  }
  lanes(w, [&](u32 i) { out[0][i] |= out[1][i] << 16; });
  commit(w, in.dst[0], out[0]);
}
// Packed f32: op_sel picks the dword for each result.
template <class F>
void packed_f32(Wave& w, const Inst& in, F f) {
  alignas(64) f32 d[2][kLanes];
  const bool flushes = w.flushes;
  for (int h = 0; h < 2; ++h) {
    alignas(64) u32 t[3][kLanes];
    const u32* p[3];
    u32 flip[3];
    for (u32 k = 0; k < 3; ++k) {
      const Operand& o = in.src[k < in.nsrc ? k : 0];
      p[k] = read_raw(w, o, t[k], o.flags & (h ? kHighHi : kHigh) ? 1 : 0);
      flip[k] = o.flags & (h ? kNegHi : kNeg) ? 0x80000000u : 0;
    }
    const auto moded = [&](f32 x) { return flushes ? flush(x) : x; };
    lanes(w, [&](u32 i) {
      f32 x[3];
      for (u32 k = 0; k < 3; ++k) x[k] = moded(bits<f32>(p[k][i] ^ flip[k]));
      const f32 r = f(x[0], x[1], x[2]);
      d[h][i] = moded(in.clamp ? modify(r, 0, true, w.dx10_clamp) : r);
    });
  }
  commit(w, in.dst[0], reinterpret_cast<u32*>(d[0]), 0);
  commit(w, in.dst[0], reinterpret_cast<u32*>(d[1]), 1);
}
void pk_mov(Wave& w, const Inst& in) {
  alignas(64) u32 t0[kLanes], t1[kLanes], d0[kLanes], d1[kLanes];
  const u32* a = read_raw(w, in.src[0], t0, in.src[0].flags & kHigh ? 1 : 0);
  const u32* b = read_raw(w, in.src[1], t1, in.src[1].flags & kHigh ? 1 : 0);
  std::memcpy(d0, a, sizeof d0);
  std::memcpy(d1, b, sizeof d1);
  commit(w, in.dst[0], d0, 0);
  commit(w, in.dst[0], d1, 1);
}
void bind_pk32(Program&, Inst& in,
               const std::string& text) {  // op_sel_hi's effect on a constant is undocumented
  for (u32 k = 0; k < in.nsrc; ++k)
    if (in.src[k].kind == Kind::constant && in.src[k].value && (in.src[k].flags & kHighHi))
      throw Error("packed f32 with a constant and op_sel_hi=1 is not supported: " + text);
}

// Mixed precision: a source is f32, or a half of its register where op_sel_hi says so.
const f32* mixed(const Wave& w, const Operand& o, f32* tmp) {
  if (!(o.flags & kHighHi)) return F32::load(w, o, tmp);
  return F16::load(w, o, tmp);
}
template <bool kHalf>
void fma_mix(Wave& w, const Inst& in) {
  alignas(64) f32 ta[kLanes], tb[kLanes], tc[kLanes], d[kLanes];
  const f32 *a = mixed(w, in.src[0], ta), *b = mixed(w, in.src[1], tb), *c = mixed(w, in.src[2], tc);
  lanes(w, [&](u32 i) { d[i] = __builtin_fmaf(a[i], b[i], c[i]); });
  if (kHalf && w.saturates)  // beyond f32 it is beyond fp16, too
    lanes(w, [&](u32 i) {
      const bool finite = std::isfinite(a[i]) && std::isfinite(b[i]) && std::isfinite(c[i]);
      d[i] = finite && std::isinf(d[i]) ? std::copysign(0x1p100f, d[i]) : d[i];
    });
  if (kHalf)
    F16::store(w, in, d);
  else
    F32::store(w, in, d);
}
// Source fields of the encoding (VOP3P): the constant of an operand.
constexpr u32 kLiteral = 255, kFirstFloat = 240, kLastFloat = 248;
u32 source_field(const Inst& in, u32 k) { return in.words[1] >> 9 * k & 0x1ff; }

// A literal is a dword with halves, and the disassembler's text has only its low one. An inline constant read
// as a half is spelled out as a half.
void mix_constant(Program& p, Inst& in, u32 k, const std::string& text) {
  Operand& o = in.src[k];
  const u32 field = source_field(in, k);
  if (field == kLiteral) return set_constant(p, o, in.words[2]);
  if (!(o.flags & kHighHi) || !o.value) return;
  if (o.flags & kHigh)
    throw Error("what the upper half of an inline constant holds in mixed precision is not documented: " +
                text);
  if (field >= kFirstFloat && field <= kLastFloat)
    set_constant(p, o, float_to_half(bits<f32>(static_cast<u32>(o.value))));
}
void bind_mix(Program& p, Inst& in, const std::string& text) {
  for (u32 k = 0; k < in.nsrc; ++k) {
    u8& f = in.src[k].flags;
    if (f & kNegHi) f = static_cast<u8>((f & ~kNegHi) | kAbs);  // neg_hi of a mix instruction is |x|
    if (in.src[k].kind == Kind::constant) mix_constant(p, in, k, text);
  }
}
void bind_mixhi(Program& p, Inst& in, const std::string& text) {
  bind_mix(p, in, text);
  in.dst[0].flags |= kHigh;
}

// d = a0*b0 + a1*b1 + c: two fused steps in f32, element 0 first (the order is undocumented).
template <class A>
void dot2(Wave& w, const Inst& in, A value) {
  alignas(64) u32 a0[kLanes], a1[kLanes], b0[kLanes], b1[kLanes];
  alignas(64) f32 tc[kLanes], d[kLanes];
  half_bits(w, in.src[0], 0, true, a0);
  half_bits(w, in.src[0], 1, true, a1);
  half_bits(w, in.src[1], 0, true, b0);
  half_bits(w, in.src[1], 1, true, b1);
  const f32* c = F32::load(w, in.src[2], tc);
  lanes(w, [&](u32 i) {
    d[i] = __builtin_fmaf(value(a1[i]), value(b1[i]), __builtin_fmaf(value(a0[i]), value(b0[i]), c[i]));
  });
  F32::store(w, in, d);
}
// One half of eight lanes' registers as floats: op_sel's shift, and the sign bit flipped by neg.
__m256 eight_halves(const u32* p, int shift, u32 flip) {
  __m256i x =
      _mm256_srl_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm_cvtsi32_si128(shift));
  x = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
  const __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  return _mm256_xor_ps(_mm256_cvtph_ps(h), _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(flip))));
}
// Zero, with its sign, where the magnitude is below `least`.
__m256 flushed(__m256 x, f32 least) {
  const __m256 sign = _mm256_set1_ps(-0.0f), size = _mm256_andnot_ps(sign, x);
  const __m256 small = _mm256_cmp_ps(size, _mm256_set1_ps(least), _CMP_LT_OQ);
  return _mm256_blendv_ps(x, _mm256_and_ps(x, sign), small);
}
void dot2_f16(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes];
  alignas(64) f32 tc[kLanes], d[kLanes];
  const u32 *a = read_raw(w, in.src[0], ta), *b = read_raw(w, in.src[1], tb);
  const f32* c = F32::load(w, in.src[2], tc);
  // The least that counts, of halves and floats.
  const auto& traits = fa::traits(w.program->gfx);
  const f32 half = traits.flushes_denormals ? 0x1p-14f : 0;
  const f32 whole = traits.flushes_denormals || traits.flushes_sums ? 0x1p-126f : 0;
  int shift[2][2];
  u32 flip[2][2];
  for (u32 k = 0; k < 2; ++k) {
    const u8 flags = in.src[k].flags;
    for (u32 h = 0; h < 2; ++h) {
      shift[k][h] = flags & (h ? kHighHi : kHigh) ? 16 : 0;
      flip[k][h] = flags & (h ? kNegHi : kNeg) ? 0x80000000u : 0;
    }
  }
  for (u32 i = 0; i < w.n; i += 8) {
    __m256 sum = flushed(_mm256_loadu_ps(c + i), whole);
    for (u32 h = 0; h < 2; ++h)
      sum = _mm256_fmadd_ps(flushed(eight_halves(a + i, shift[0][h], flip[0][h]), half),
                            flushed(eight_halves(b + i, shift[1][h], flip[1][h]), half), sum);
    _mm256_store_ps(d + i, flushed(sum, whole));
  }
  F32::store(w, in, d);
}
void bind_dot2c(Program&, Inst& in, const std::string&) {
  for (u32 k = 0; k < 2; ++k) in.src[k].flags |= kHighHi;
}

i32 s16(u32 x) { return static_cast<i16>(x); }
u32 sat_u16(i64 x, bool c) { return static_cast<u32>(!c ? x : x < 0 ? 0 : x > 65535 ? 65535 : x); }
u32 sat_i16(i64 x, bool c) { return static_cast<u32>(!c ? x : x < -32768 ? -32768 : x > 32767 ? 32767 : x); }

#define PKF(name, expr)                                \
  t.add({#name,                                        \
         [](Wave& w, const Inst& in) {                 \
           packed_f16(w, in, [](f32 a, f32 b, f32 c) { \
             (void)c;                                  \
             return expr;                              \
           });                                         \
         },                                            \
         Class::valu,                                  \
         1,                                            \
         {Type::pkf16},                                \
         kPacked,                                      \
         nullptr})                                     \
      .follows(flow::packed);
#define PKI(name, fp, expr)                                        \
  t.add({#name,                                                    \
         [](Wave& w, const Inst& in) {                             \
           packed_b16(w, in, fp, [&](u32 a, u32 b, u32 c) -> u32 { \
             (void)a;                                              \
             (void)c;                                              \
             return expr;                                          \
           });                                                     \
         },                                                        \
         Class::valu,                                              \
         1,                                                        \
         {fp ? Type::pkf16 : Type::pk16},                          \
         kPacked | kIntClamp,                                      \
         nullptr})                                                 \
      .follows(flow::packed);
#define PK32(name, expr)                               \
  t.add({#name,                                        \
         [](Wave& w, const Inst& in) {                 \
           packed_f32(w, in, [](f32 a, f32 b, f32 c) { \
             (void)c;                                  \
             return expr;                              \
           });                                         \
         },                                            \
         Class::valu,                                  \
         1,                                            \
         {Type::f32},                                  \
         kPacked,                                      \
         bind_pk32})                                   \
      .follows(flow::packed_f32);
}  // namespace

void add_packed(Ops& t) {
  PKF(v_pk_add_f16, a + b)
  PKF(v_pk_mul_f16, a * b)
  PKF(v_pk_fma_f16, half_fma_odd(a, b, c))
  PKI(v_pk_max_f16, true, pick_f16(a, b, true, w.ieee))
  PKI(v_pk_min_f16, true, pick_f16(a, b, false, w.ieee))
  PKI(v_pk_max_num_f16, true, pick_f16(a, b, true, false))
  PKI(v_pk_min_num_f16, true, pick_f16(a, b, false, false))
  PKI(v_pk_add_u16, false, sat_u16(static_cast<i64>(a) + b, in.clamp))
  PKI(v_pk_sub_u16, false, sat_u16(static_cast<i64>(a) - b, in.clamp))
  PKI(v_pk_add_i16, false, sat_i16(static_cast<i64>(s16(a)) + s16(b), in.clamp))
  PKI(v_pk_sub_i16, false, sat_i16(static_cast<i64>(s16(a)) - s16(b), in.clamp))
  PKI(v_pk_mul_lo_u16, false, a * b)
  PKI(v_pk_mad_u16, false, sat_u16(static_cast<i64>(a) * b + c, in.clamp))
  PKI(v_pk_mad_i16, false, sat_i16(static_cast<i64>(s16(a)) * s16(b) + s16(c), in.clamp))
  PKI(v_pk_lshlrev_b16, false, b << (a & 15))
  PKI(v_pk_lshrrev_b16, false, b >> (a & 15))
  PKI(v_pk_ashrrev_i16, false, static_cast<u32>(s16(b) >> (a & 15)))
  PKI(v_pk_min_u16, false, std::min(a, b))
  PKI(v_pk_max_u16, false, std::max(a, b))
  PKI(v_pk_min_i16, false, static_cast<u32>(std::min(s16(a), s16(b))))
  PKI(v_pk_max_i16, false, static_cast<u32>(std::max(s16(a), s16(b))))
  PK32(v_pk_add_f32, a + b)
  PK32(v_pk_mul_f32, a * b)
  PK32(v_pk_fma_f32, __builtin_fmaf(a, b, c))
  t.add({"v_pk_mov_b32", pk_mov, Class::valu, 1, {Type::b32}, kPacked, nullptr}).follows(flow::moves<0b11>);
  t.add({"v_fma_mix_f32", fma_mix<false>, Class::valu, 1, {Type::f32}, kMix, bind_mix});
  t.add(
      {"v_fma_mixlo_f16", fma_mix<true>, Class::valu, 1, {Type::f32}, kMix | kKeepHigh | kStore16, bind_mix});
  t.add({"v_fma_mixhi_f16",
         fma_mix<true>,
         Class::valu,
         1,
         {Type::f32},
         kMix | kKeepHigh | kStore16,
         bind_mixhi});
  t.add(
      {"v_dot2_f32_f16", dot2_f16, Class::valu, 1, {Type::pkf16, Type::pkf16, Type::f32}, kPacked, nullptr});
  t.add({"v_dot2c_f32_f16",
         dot2_f16,
         Class::valu,
         1,
         {Type::pkf16, Type::pkf16, Type::f32},
         kDstIsSrc,
         bind_dot2c});
  t.add({"v_dot2_f32_bf16",
         [](Wave& w, const Inst& in) { dot2(w, in, bf16_to_float); },
         Class::valu,
         1,
         {Type::pk16, Type::pk16, Type::f32},
         kPacked,
         nullptr});
  t.alias("v_dot2acc_f32_f16", "v_dot2c_f32_f16");
}
}  // namespace emu
