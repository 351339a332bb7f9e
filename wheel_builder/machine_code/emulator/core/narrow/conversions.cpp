// Conversions from and to floats of 8 bits. They keep the bits that they do not write. Which byte or half of
// a register they read or write is in op_sel, or on RDNA 4 partly in byte_sel: `aux` holds its lowest bit.
#include <cstring>

#include "code/ops.hpp"
#include "narrow/formats.hpp"

namespace emu {
namespace {
constexpr u32 kByte = 0xff, kHalf = 0xffff;
constexpr u32 kScaleBias = 127;

fa::Fp8 family(const Wave& w) { return fa::traits(w.program->gfx).fp8; }
SmallFormat format_of(const Wave& w, Small which) { return small_format(family(w), which); }
Overflow overflow_of(const Wave& w) {
  return !w.saturates        ? Overflow::is_told
         : w.program->gfx9() ? Overflow::saturates_infinities
                             : Overflow::saturates;
}

// ---- places in a register
u32 selected(const Inst& in, u32 first) { return in.op_sel_bits >> first; }
void bind_source_byte(Program&, Inst& in, const std::string&) { in.aux |= 8 * (selected(in, 0) & 3); }
void bind_source_half(Program&, Inst& in, const std::string&) { in.aux |= 16 * (selected(in, 0) & 1); }
void bind_result_byte(Program&, Inst& in, const std::string&) { in.aux |= 8 * (selected(in, 2) & 3); }
void bind_result_half(Program&, Inst& in, const std::string&) {
  if (in.dst[0].flags & kHigh) in.aux = 16;
  in.aux |= 16 * (selected(in, in.nsrc) & 1);
}
// v_cvt_scalef32_f16_fp8: a byte of the source, a half of the result.
void bind_byte_and_half(Program& p, Inst& in, const std::string& text) {
  bind_source_byte(p, in, text);
  if (selected(in, 2) & 1) in.dst[0].flags |= kHigh;
}
void put(Wave& w, const Inst& in, const u32* x, u32 mask) {
  u32* d = w.v[in.dst[0].index];
  const u32* em = w.em;
  const u32 shift = in.aux, whole = mask << shift;
  lanes(w, [=](u32 i) { d[i] = (d[i] & ~(whole & em[i])) | (x[i] << shift & whole & em[i]); });
}

// ---- undefined bits
// The sources from `first` on taint all of `count` results, and each result its own bits of the first source.
void narrow_flow(Wave& s, const Inst& in, u32 width, u32 count, u32 (*out)[kLanes]) {
  alignas(64) u32 t[kLanes];
  const u32* own = flow::undefined(s, in.src[0], t);
  const u32 mask = width == 32 ? ~0u : (1u << width) - 1;
  for (u32 r = 0; r < count; ++r)
    lanes(s, [&](u32 i) { out[r][i] = own[i] >> (in.aux + width * r) & mask ? ~0u : 0; });
  for (u32 k = 1; k < in.nsrc; ++k) {
    const u32* more = flow::undefined(s, in.src[k], t);
    for (u32 r = 0; r < count; ++r) lanes(s, [&](u32 i) { out[r][i] |= more[i] ? ~0u : 0; });
  }
}
template <u32 kCount>
void floats_flow(Wave& s, const Inst& in) {
  alignas(64) u32 out[kCount][kLanes];
  narrow_flow(s, in, 8, kCount, out);
  for (u32 r = 0; r < kCount; ++r) commit(s, in.dst[0], out[r], r);
}
void halves_flow(Wave& s, const Inst& in) {
  alignas(64) u32 out[2][kLanes];
  narrow_flow(s, in, 8, 2, out);
  lanes(s, [&](u32 i) { out[0][i] = (out[0][i] & kHalf) | out[1][i] << 16; });
  commit(s, in.dst[0], out[0]);
}
void one_half_flow(Wave& s, const Inst& in) {
  alignas(64) u32 out[1][kLanes];
  narrow_flow(s, in, 8, 1, out);
  commit16(s, in, out[0]);
}
// Any undefined bit of the sources leaves all written bits undefined.
template <u32 kMask>
void written_flow(Wave& s, const Inst& in) {
  alignas(64) u32 t[kLanes], bad[kLanes] = {0};
  for (u32 k = 0; k < in.nsrc; ++k) {
    const u32* p = flow::undefined(s, in.src[k], t);
    const u32 relevant =
        source_type(*in.op, k) == Type::f16 || source_type(*in.op, k) == Type::b16 ? kHalf : ~0u;
    lanes(s, [&](u32 i) { bad[i] |= p[i] & relevant ? ~0u : 0; });
  }
  put(s, in, bad, kMask);
}

// ---- from 8 bits. A scale is the exponent of a float: the result is multiplied by that power of two.
const u32* exponents(const Wave& w, const Operand& o, u32* tmp) {
  const u32* p = read_raw(w, o, tmp);
  lanes(w, [&](u32 i) { tmp[i] = p[i] >> 23 & 0xff; });
  return tmp;
}
f32 power(u32 exponent) {
  if (exponent == 0) return 0x1p-127f;
  return bits<f32>(exponent == 255 ? 0x7fc00000u : exponent << 23);
}
template <Small kFrom, bool kScaled>
void widened(const Wave& w, const Inst& in, u32 number, f32* out) {
  alignas(64) u32 t[kLanes], fields[kLanes];
  const u32* p = read_raw(w, in.src[0], t);
  const f32* table = small_table(family(w), kFrom).data();
  const u32 shift = in.aux + 8 * number;
  lanes(w, [&](u32 i) { out[i] = table[p[i] >> shift & kByte]; });
  if (!kScaled) return;
  const u32* e = exponents(w, in.src[1], fields);
  lanes(w, [&](u32 i) { out[i] *= power(e[i]); });
}
template <Small kFrom, bool kScaled, u32 kCount>
void to_floats(Wave& w, const Inst& in) {
  alignas(64) f32 x[kCount][kLanes];
  for (u32 r = 0; r < kCount; ++r) widened<kFrom, kScaled>(w, in, r, x[r]);
  for (u32 r = 0; r < kCount; ++r) {
    if (w.flushes) lanes(w, [&](u32 i) { x[r][i] = flush(x[r][i]); });
    commit(w, in.dst[0], reinterpret_cast<u32*>(x[r]), r);
  }
}
template <Small kFrom, bool kBf16>
void to_halves(Wave& w, const Inst& in) {
  alignas(64) f32 x[kLanes];
  alignas(64) u32 half[2][kLanes];
  for (u32 r = 0; r < 2; ++r) {
    widened<kFrom, true>(w, in, r, x);
    if (kBf16)
      lanes(w, [&](u32 i) { half[r][i] = float_to_bf16(x[i]); });
    else
      floats_to_halves(x, half[r], static_cast<int>(w.n));
  }
  lanes(w, [&](u32 i) { half[0][i] |= half[1][i] << 16; });
  commit(w, in.dst[0], half[0]);
}
template <Small kFrom>
void to_half(Wave& w, const Inst& in) {
  alignas(64) f32 x[kLanes];
  alignas(64) u32 half[kLanes];
  widened<kFrom, true>(w, in, 0, x);
  floats_to_halves(x, half, static_cast<int>(w.n));
  Inst kept = in;
  kept.keep_high = true;
  commit16(w, kept, half);
}

// ---- to 8 bits
enum class From : u8 { f32_, f16_, bf16_ };
// Number `r` to be converted: a source of f32 each, or the halves of one.
template <From kFrom>
const f32* given(const Wave& w, const Inst& in, u32 r, f32* tmp) {
  if (kFrom == From::f32_) return F32::load(w, in.src[r], tmp);
  alignas(64) u32 t[kLanes];
  const u32* p = read_raw(w, in.src[0], t);
  if (kFrom == From::f16_)
    halves_to_floats(p, tmp, static_cast<int>(w.n), r);
  else
    lanes(w, [&](u32 i) { tmp[i] = bf16_to_float(p[i] >> 16 * r & kHalf); });
  return tmp;
}
// Divided by the scale, which is the last source. A scale of NaN gives NaN.
void scale_down(const Wave& w, const Inst& in, const f32* x, f32* out) {
  alignas(64) u32 fields[kLanes];
  const u32* e = exponents(w, in.src[in.nsrc - 1], fields);
  lanes(w, [&](u32 i) { out[i] = x[i] * power(e[i] == 255 ? 255 : 2 * kScaleBias - e[i]); });
}
// What decides NaN and infinity: the number before scaling, unless the scale is NaN.
void special(const Wave& w, const f32* x, f32* scaled) {
  lanes(w, [&](u32 i) { scaled[i] = scaled[i] != scaled[i] ? scaled[i] : x[i]; });
}
template <Small kTo, From kFrom, bool kScaled>
void to_pair(Wave& w, const Inst& in) {
  alignas(64) f32 t[kLanes], scaled[kLanes], told[kLanes];
  alignas(64) u32 out[kLanes] = {0};
  const SmallFormat f = format_of(w, kTo);
  const Overflow o = overflow_of(w);
  for (u32 r = 0; r < 2; ++r) {
    const f32 *x = given<kFrom>(w, in, r, t), *y = x;
    if (kScaled) {
      scale_down(w, in, x, scaled);
      std::memcpy(told, scaled, sizeof told);
      special(w, x, told);
      x = told, y = scaled;
    }
    lanes(w, [&](u32 i) { out[i] |= float_to_small(y[i], x[i], f, o) << 8 * r; });
  }
  put(w, in, out, kHalf);
}
template <Small kTo, From kFrom, bool kScaled>
void to_random(Wave& w, const Inst& in) {
  alignas(64) f32 t[kLanes], scaled[kLanes];
  alignas(64) u32 tr[kLanes], out[kLanes];
  const SmallFormat f = format_of(w, kTo);
  const Overflow o = overflow_of(w);
  const f32* x = given<kFrom>(w, in, 0, t);
  const u32* random = read_raw(w, in.src[1], tr);
  if (kScaled) scale_down(w, in, x, scaled);
  const f32* y = kScaled ? scaled : x;
  // A finite number stays one: beyond f32's range it is the largest.
  lanes(w, [&](u32 i) {
    const bool over = std::isinf(y[i]) && !std::isinf(x[i]);
    out[i] = float_to_small_random(over ? std::copysign(0x1.fffffep127f, y[i]) : y[i], random[i], f, o);
  });
  put(w, in, out, kByte);
}

using Bind = void (*)(Program&, Inst&, const std::string&);
void refuse_modifiers(const Inst& in, const std::string& text) {
  for (u32 k = 0; k < in.nsrc; ++k)
    if (in.src[k].flags & (kNeg | kAbs) && source_type(*in.op, k) != Type::f32)
      throw Error("a negated operand of this conversion is not implemented: " + text);
  if (in.omod) throw Error("a conversion of 8 bits takes no output modifier: " + text);
}
template <Bind kThen>
void bind(Program& p, Inst& in, const std::string& text) {
  if (fa::traits(p.gfx).fp8 == fa::Fp8::none) throw Error("this arch has no floats of 8 bits: " + text);
  refuse_modifiers(in, text);
  kThen(p, in, text);
}

struct Types {
  Type a, b, c;
};
void add(Ops& t, const std::string& name, Handler h, Types s, Bind then, Handler flow, u32 flags = 0) {
  // Names of a table last as long as the program.
  t.add({strdup(name.c_str()), h, Class::valu, 1, {s.a, s.b, s.c}, flags | kOpSelBits, then}).follows(flow);
}

template <Small kS>
void add_format(Ops& t, const std::string& s) {
  constexpr Type b = Type::b32, f = Type::f32, none = Type::any;
  const Types one = {b, none, none}, scaled = {b, f, none};
  add(t, "v_cvt_f32_" + s, to_floats<kS, false, 1>, one, bind<bind_source_byte>, floats_flow<1>);
  add(t, "v_cvt_pk_f32_" + s, to_floats<kS, false, 2>, one, bind<bind_source_half>, floats_flow<2>);
  add(t, "v_cvt_scalef32_f32_" + s, to_floats<kS, true, 1>, scaled, bind<bind_source_byte>, floats_flow<1>);
  add(t, "v_cvt_scalef32_pk_f32_" + s, to_floats<kS, true, 2>, scaled, bind<bind_source_half>,
      floats_flow<2>);
  add(t, "v_cvt_scalef32_pk_f16_" + s, to_halves<kS, false>, scaled, bind<bind_source_half>, halves_flow,
      kNotSaturated);
  add(t, "v_cvt_scalef32_pk_bf16_" + s, to_halves<kS, true>, scaled, bind<bind_source_half>, halves_flow);
  add(t, "v_cvt_scalef32_f16_" + s, to_half<kS>, scaled, bind<bind_byte_and_half>, one_half_flow,
      kStore16 | kKeepHigh | kNotSaturated);

  const Handler half = written_flow<kHalf>, byte = written_flow<kByte>;
  const Bind to_half_of = bind<bind_result_half>, to_byte_of = bind<bind_result_byte>;
  const std::string pk = "v_cvt_scalef32_pk_" + s, sr = "v_cvt_scalef32_sr_" + s;
  add(t, "v_cvt_pk_" + s + "_f32", to_pair<kS, From::f32_, false>, {f, f, none}, to_half_of, half);
  add(t, pk + "_f32", to_pair<kS, From::f32_, true>, {f, f, f}, to_half_of, half);
  add(t, pk + "_f16", to_pair<kS, From::f16_, true>, {Type::pkf16, f, none}, to_half_of, half);
  add(t, pk + "_bf16", to_pair<kS, From::bf16_, true>, {Type::pk16, f, none}, to_half_of, half);
  add(t, "v_cvt_sr_" + s + "_f32", to_random<kS, From::f32_, false>, {f, b, none}, to_byte_of, byte);
  add(t, sr + "_f32", to_random<kS, From::f32_, true>, {f, b, f}, to_byte_of, byte);
  add(t, sr + "_f16", to_random<kS, From::f16_, true>, {Type::f16, b, f}, to_byte_of, byte);
  add(t, sr + "_bf16", to_random<kS, From::bf16_, true>, {Type::b16, b, f}, to_byte_of, byte);
}
}  // namespace

void add_narrow_conversions(Ops& t) {
  add_format<Small::fp8_>(t, "fp8");
  add_format<Small::bf8_>(t, "bf8");
}
}  // namespace emu
