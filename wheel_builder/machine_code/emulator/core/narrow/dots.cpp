// Dot products of four bytes a lane, and packing into bytes.
#include <algorithm>

#include "code/ops.hpp"
#include "narrow/formats.hpp"

namespace emu {
namespace {
// Four products and a sum that wraps or, with clamp, saturates. Each product fits into 17 bits.
template <class A, class B>
void dot4_of(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes], tc[kLanes], d[kLanes];
  const u32 *a = read_raw(w, in.src[0], ta), *b = read_raw(w, in.src[1], tb), *c = read_raw(w, in.src[2], tc);
  constexpr bool kSigned = static_cast<A>(-1) < 0 || static_cast<B>(-1) < 0;
  constexpr i64 kLow = kSigned ? INT32_MIN : 0, kHigh = kSigned ? INT32_MAX : UINT32_MAX;
  lanes(w, [&](u32 i) {
    i64 sum = kSigned ? static_cast<i64>(static_cast<i32>(c[i])) : static_cast<i64>(c[i]);
    for (u32 k = 0; k < 32; k += 8) sum += static_cast<A>(a[i] >> k) * static_cast<B>(b[i] >> k);
    d[i] = static_cast<u32>(in.clamp ? std::max(kLow, std::min(kHigh, sum)) : sum);
  });
  commit(w, in.dst[0], d);
}
// neg_lo says whose bytes are signed. The sum always is.
void dot4_iu8(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes], tc[kLanes], d[kLanes];
  const u32 *a = read_raw(w, in.src[0], ta), *b = read_raw(w, in.src[1], tb), *c = read_raw(w, in.src[2], tc);
  const bool signed_a = in.src[0].flags & kNeg, signed_b = in.src[1].flags & kNeg;
  lanes(w, [&](u32 i) {
    i64 sum = static_cast<i32>(c[i]);
    for (u32 k = 0; k < 32; k += 8) {
      const u32 x = a[i] >> k & 0xff, y = b[i] >> k & 0xff;
      sum += (signed_a ? static_cast<i8>(x) : static_cast<i32>(x)) *
             (signed_b ? static_cast<i8>(y) : static_cast<i32>(y));
    }
    d[i] = static_cast<u32>(in.clamp ? std::max<i64>(INT32_MIN, std::min<i64>(INT32_MAX, sum)) : sum);
  });
  commit(w, in.dst[0], d);
}

// Products are exact in f32. Sums are f32's, byte 0 first.
template <Small kA, Small kB>
void dot4_floats(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes];
  alignas(64) f32 tc[kLanes], d[kLanes];
  const u32 *a = read_raw(w, in.src[0], ta), *b = read_raw(w, in.src[1], tb);
  const f32* c = F32::load(w, in.src[2], tc);
  const fa::Fp8 family = fa::traits(w.program->gfx).fp8;
  const f32 *of_a = small_table(family, kA).data(), *of_b = small_table(family, kB).data();
  lanes(w, [&](u32 i) {
    d[i] = c[i];
    for (u32 k = 0; k < 32; k += 8)
      d[i] = __builtin_fmaf(of_a[a[i] >> k & 0xff], of_b[b[i] >> k & 0xff], d[i]);
  });
  F32::store(w, in, d);
}

void no_modifiers(Program&, Inst& in, const std::string& text) {
  for (u32 k = 0; k < in.nsrc; ++k)
    if (in.src[k].flags & (kNeg | kNegHi))
      throw Error("a negated operand of this dot product is not implemented: " + text);
}

u32 bytes_of_halves(u32 x) {
  const auto byte = [](u32 h) {
    return static_cast<u32>(std::max(0, std::min(255, static_cast<i32>(static_cast<i16>(h)))));
  };
  return byte(x) | byte(x >> 16) << 8;
}
}  // namespace

void add_narrow_dots(Ops& t) {
  auto dot = [&](const char* name, Handler h, Type c, u32 flags,
                 void (*bind)(Program&, Inst&, const std::string&)) {
    t.add({name, h, Class::valu, 1, {Type::b32, Type::b32, c}, flags, bind});
  };
  constexpr u32 packed = kPacked | kIntClamp;
  dot("v_dot4_i32_i8", dot4_of<i8, i8>, Type::b32, packed, no_modifiers);
  dot("v_dot4_u32_u8", dot4_of<u8, u8>, Type::b32, packed, no_modifiers);
  dot("v_dot4c_i32_i8", dot4_of<i8, i8>, Type::b32, kDstIsSrc, nullptr);
  dot("v_dot4_i32_iu8", dot4_iu8, Type::b32, packed, nullptr);
  constexpr Small fp8 = Small::fp8_, bf8 = Small::bf8_;
  dot("v_dot4_f32_fp8_fp8", dot4_floats<fp8, fp8>, Type::f32, kPacked, no_modifiers);
  dot("v_dot4_f32_fp8_bf8", dot4_floats<fp8, bf8>, Type::f32, kPacked, no_modifiers);
  dot("v_dot4_f32_bf8_fp8", dot4_floats<bf8, fp8>, Type::f32, kPacked, no_modifiers);
  dot("v_dot4_f32_bf8_bf8", dot4_floats<bf8, bf8>, Type::f32, kPacked, no_modifiers);
  V1F(v_sat_pk_u8_i16, valu, U16, U32, kStore16, bytes_of_halves(a));
}
}  // namespace emu
