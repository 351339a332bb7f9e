// Integer VALU instructions.
#include <algorithm>

#include "code/ops.hpp"

namespace emu {
namespace {
u32 leading_zeros(u32 x) { return x ? static_cast<u32>(__builtin_clz(x)) : ~0u; }
u32 trailing_zeros(u32 x) { return x ? static_cast<u32>(__builtin_ctz(x)) : ~0u; }
u32 leading_signs(u32 x) { return leading_zeros(x ^ (0u - (x >> 31))); }
i32 signed24(u32 x) { return static_cast<i32>(x << 8) >> 8; }
u32 bfe_u(u32 x, u32 offset, u32 width) {
  offset &= 31;
  width &= 31;
  return x >> offset & ((1u << width) - 1);
}
u32 bfe_i(u32 x, u32 offset, u32 width) {
  offset &= 31;
  width &= 31;
  if (width == 0) return 0;
  if (offset + width >= 32) return static_cast<u32>(static_cast<i32>(x) >> offset);
  return static_cast<u32>(static_cast<i32>(x << (32 - offset - width)) >> (32 - width));
}
u32 perm(u32 hi, u32 lo, u32 sel) {
  u64 both = static_cast<u64>(hi) << 32 | lo;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    u32 s = sel >> (8 * i) & 0xff, byte;
    if (s >= 13)
      byte = 0xff;
    else if (s == 12)
      byte = 0;
    else if (s >= 8)
      byte = (both >> (16 * (s - 8) + 15) & 1) ? 0xff : 0;
    else
      byte = static_cast<u32>(both >> (8 * s)) & 0xff;
    r |= byte << (8 * i);
  }
  return r;
}
u32 sad_u8(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32; i += 8) {
    i32 d = static_cast<i32>(a >> i & 0xff) - static_cast<i32>(b >> i & 0xff);
    c += static_cast<u32>(d < 0 ? -d : d);
  }
  return c;
}
u32 clamp_u32(u64 x, bool clamp) { return clamp && x >> 32 ? (x >> 63 ? 0u : ~0u) : static_cast<u32>(x); }
u32 clamp_i32(i64 x, bool clamp) {
  if (clamp && x > INT32_MAX) return static_cast<u32>(INT32_MAX);
  if (clamp && x < INT32_MIN) return static_cast<u32>(INT32_MIN);
  return static_cast<u32>(x);
}
u32 clamp_u16(u32 x, bool clamp) { return clamp && x >> 16 ? (x >> 31 ? 0u : 0xffffu) : x & 0xffffu; }
i32 clamp_i16(i32 x, bool clamp) { return !clamp ? x : x > 32767 ? 32767 : x < -32768 ? -32768 : x; }
i32 s(u32 x) { return static_cast<i32>(x); }
i64 wide(u32 x) { return static_cast<i32>(x); }

// Sum with carries: per-lane carry out to one mask, carry in from another.
template <class F>
void carry_op(Wave& w, const Inst& in, bool with_carry, F f) {
  alignas(64) u32 ta[kLanes], tb[kLanes], d[kLanes], carry[kLanes];
  const u32 *a = U32::load(w, in.src[0], ta), *b = U32::load(w, in.src[1], tb);
  u64 cin = with_carry ? read_mask(w, in.src[2]) : 0;
  lanes(w, [&](u32 i) {
    u64 r = f(static_cast<u64>(a[i]), static_cast<u64>(b[i]), cin >> i & 1);
    d[i] = clamp_u32(r, in.clamp);
    carry[i] = r >> 32 ? ~0u : 0u;
  });
  commit(w, in.dst[0], d);
  write_mask(w, in.dst[1], pack_mask(w, carry) & w.exec);
}
#define CARRY(name, nsrc3, expr)                            \
  t.add({#name,                                             \
         [](Wave& w, const Inst& in) {                      \
           carry_op(w, in, nsrc3, [](u64 a, u64 b, u64 c) { \
             (void)c;                                       \
             return expr;                                   \
           });                                              \
         },                                                 \
         Class::valu, 2, EMU_LIST(Type::b32, Type::b32, Type::mask), kIntClamp, nullptr});

template <class T, class W>
void mad64(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes], over[kLanes];
  alignas(64) u64 tc[kLanes], d[kLanes];
  const u32 *a = U32::load(w, in.src[0], ta), *b = U32::load(w, in.src[1], tb);
  const u64* c = U64::load(w, in.src[2], tc);
  lanes(w, [&](u32 i) {
    u64 p = static_cast<u64>(static_cast<W>(static_cast<T>(a[i])) * static_cast<W>(static_cast<T>(b[i])));
    d[i] = p + c[i];
    over[i] = d[i] < p ? ~0u : 0u;
  });
  u64 mask = pack_mask(w, over) & w.exec;
  U64::store(w, in, d);
  write_mask(w, in.dst[1], mask);
}

void cndmask(Wave& w, const Inst& in) {
  alignas(64) f32 ta[kLanes], tb[kLanes];  // neg and abs are allowed on the values, which are only moved
  alignas(64) u32 d[kLanes];
  const u32* a = reinterpret_cast<const u32*>(F32::modified(w, in.src[0], ta));
  const u32* b = reinterpret_cast<const u32*>(F32::modified(w, in.src[1], tb));
  u64 m = read_mask(w, in.src[2]);
  lanes(w, [&](u32 i) { d[i] = m >> i & 1 ? b[i] : a[i]; });
  commit(w, in.dst[0], d);
}
void cndmask16(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes], d[kLanes];
  const u32 *a = U16::load(w, in.src[0], ta), *b = U16::load(w, in.src[1], tb);
  u64 m = read_mask(w, in.src[2]);
  lanes(w, [&](u32 i) { d[i] = m >> i & 1 ? b[i] : a[i]; });
  commit16(w, in, d);
}

// Bit by bit, an entry of a truth table chosen by the bits of the three sources, the first source highest.
u32 by_table(u32 table, u32 a, u32 b, u32 c) {
  u32 out = 0;
  for (u32 entry = 0; entry < 8; ++entry)
    if (table >> entry & 1) out |= (entry & 4 ? a : ~a) & (entry & 2 ? b : ~b) & (entry & 1 ? c : ~c);
  return out;
}
void table_flow(Wave& s, const Inst& in) {
  flow::bitwise(s, in, [&](u32 a, u32 b, u32 c) { return by_table(in.aux, a, b, c); });
}

void add_vector_logic(Ops& t) {
  V1(v_mov_b32, U32, U32, a).follows(flow::moves<>);
  V1(v_mov_b64, U64, U64, a).follows(flow::moves<>);
  BITS1(v_not_b32, U32, 0, ~a);
  V1(v_bfrev_b32, U32, U32, reverse_bits(a)).follows(flow::moves<>);
  V1(v_ffbh_u32, U32, U32, leading_zeros(a));
  V1(v_ffbl_b32, U32, U32, trailing_zeros(a));
  V1(v_ffbh_i32, U32, U32, leading_signs(a));
  BITS2(v_and_b32, U32, 0, a & b);
  V2(v_or_b32, U32, U32, U32, a | b).follows(flow::moves<0b11>);
  BITS2(v_xor_b32, U32, 0, a ^ b);
  BITS2(v_xnor_b32, U32, 0, ~(a ^ b));
  V3(v_and_or_b32, U32, U32, U32, U32, (a & b) | c).follows(EMU_BITS((a & b) ^ c));  // as an OR
  V3(v_or3_b32, U32, U32, U32, U32, a | b | c).follows(flow::moves<0b111>);
  BITS3(v_xor3_b32, U32, 0, a ^ b ^ c);
  V3(v_bfi_b32, U32, U32, U32, U32, (a & b) | (~a & c)).follows(flow::moves<0b110>);
  V3(v_bitop3_b32, U32, U32, U32, U32, by_table(in.aux, a, b, c)).follows(table_flow);
  V3(v_bfe_u32, U32, U32, U32, U32, bfe_u(a, b, c)).follows(flow::moves<>);
  V3(v_bfe_i32, U32, U32, U32, U32, bfe_i(a, b, c)).follows(flow::moves<>);
  V2(v_bfm_b32, U32, U32, U32, ((1u << (a & 31)) - 1) << (b & 31));
  V3(v_perm_b32, U32, U32, U32, U32, perm(a, b, c)).follows(flow::byte_permute);
  V3(v_alignbit_b32, U32, U32, U32, U32, static_cast<u32>((static_cast<u64>(a) << 32 | b) >> (c & 31)))
      .follows(flow::moves<0b11>);
  V3(v_alignbyte_b32, U32, U32, U32, U32, static_cast<u32>((static_cast<u64>(a) << 32 | b) >> (8 * (c & 3))))
      .follows(flow::moves<0b11>);
  V2(v_lshlrev_b32, U32, U32, U32, b << (a & 31)).follows(flow::moves<0b10>);
  V2(v_lshrrev_b32, U32, U32, U32, b >> (a & 31)).follows(flow::moves<0b10>);
  V2(v_ashrrev_i32, U32, U32, U32, static_cast<u32>(s(b) >> (a & 31))).follows(flow::moves<0b10>);
  V2(v_lshlrev_b64, U64, U32, U64, b << (a & 63)).follows(flow::moves<0b10>);
  V2(v_lshrrev_b64, U64, U32, U64, b >> (a & 63)).follows(flow::moves<0b10>);
  V2(v_ashrrev_i64, I64, U32, I64, b >> (a & 63)).follows(flow::moves<0b10>);
  V3(v_lshl_or_b32, U32, U32, U32, U32, a << (b & 31) | c).follows(flow::moves<0b101>);
  V2(v_bcnt_u32_b32, U32, U32, U32, static_cast<u32>(__builtin_popcount(a)) + b);
  t.add({"v_cndmask_b32", cndmask, Class::valu, 1, {Type::f32, Type::f32, Type::mask}, kImplicitVcc, nullptr})
      .follows(flow::choose);
  t.add({"v_cndmask_b16", cndmask16, Class::valu, 1, {Type::f16, Type::f16, Type::mask}, kStore16, nullptr})
      .follows(flow::choose);
}

void add_vector_arithmetic(Ops& t) {
  V2F(v_add_u32, valu, U32, U32, U32, kIntClamp, clamp_u32(static_cast<u64>(a) + b, in.clamp))
      .follows(flow::carry<>);
  V2F(v_sub_u32, valu, U32, U32, U32, kIntClamp, clamp_u32(static_cast<u64>(a) - b, in.clamp))
      .follows(flow::carry<>);
  V2F(v_subrev_u32, valu, U32, U32, U32, kIntClamp, clamp_u32(static_cast<u64>(b) - a, in.clamp))
      .follows(flow::carry<>);
  V2F(v_add_i32, valu, U32, U32, U32, kIntClamp, clamp_i32(wide(a) + wide(b), in.clamp));
  V2F(v_sub_i32, valu, U32, U32, U32, kIntClamp, clamp_i32(wide(a) - wide(b), in.clamp));
  CARRY(v_add_co_u32, false, a + b)
  CARRY(v_sub_co_u32, false, a - b)
  CARRY(v_subrev_co_u32, false, b - a)
  CARRY(v_addc_co_u32, true, a + b + c)
  CARRY(v_subb_co_u32, true, a - b - c)
  CARRY(v_subbrev_co_u32, true, b - a - c)
  V3(v_add3_u32, U32, U32, U32, U32, a + b + c).follows(flow::carry<>);
  V3(v_lshl_add_u32, U32, U32, U32, U32, (a << (b & 31)) + c).follows(flow::carry<1>);
  V3(v_add_lshl_u32, U32, U32, U32, U32, (a + b) << (c & 31)).follows(flow::carry<2>);
  V3(v_xad_u32, U32, U32, U32, U32, (a ^ b) + c).follows(flow::carry<>);
  V3(v_lshl_add_u64, U64, U64, U32, U64, (a << (b & 7)) + c).follows(flow::carry<1>);
  V2(v_mul_lo_u32, U32, U32, U32, a * b).follows(flow::carry<>);
  V2(v_mul_hi_u32, U32, U32, U32, static_cast<u32>(static_cast<u64>(a) * b >> 32));
  V2(v_mul_hi_i32, U32, U32, U32, static_cast<u32>(wide(a) * wide(b) >> 32));
  V2(v_mul_u32_u24, U32, U32, U32, (a & 0xffffffu) * (b & 0xffffffu))
      .follows((flow::carry<flow::kNoShift, 24>));
  V2(v_mul_i32_i24, U32, U32, U32, static_cast<u32>(signed24(a)) * static_cast<u32>(signed24(b)));
  V2(v_mul_hi_u32_u24, U32, U32, U32,
     static_cast<u32>(static_cast<u64>(a & 0xffffffu) * (b & 0xffffffu) >> 32));
  V2(v_mul_hi_i32_i24, U32, U32, U32, static_cast<u32>(static_cast<i64>(signed24(a)) * signed24(b) >> 32));
  V3F(v_mad_u32_u24, valu, U32, U32, U32, U32, kIntClamp,
      clamp_u32(static_cast<u64>(a & 0xffffffu) * (b & 0xffffffu) + c, in.clamp))
      .follows((flow::carry<flow::kNoShift, 24>));
  V3F(v_mad_i32_i24, valu, U32, U32, U32, U32, kIntClamp,
      clamp_i32(static_cast<i64>(signed24(a)) * signed24(b) + s(c), in.clamp));
  V3(v_mad_u32_u16, U32, U16, U16, U32, a * b + c);
  V3(v_mad_i32_i16, I32, I16, I16, I32, static_cast<i32>(static_cast<u32>(a * b) + static_cast<u32>(c)));
  t.add({"v_mad_u64_u32", mad64<u32, u64>, Class::valu, 2, {Type::b32, Type::b32, Type::b64}, 0, nullptr})
      .follows(flow::carry<>);
  t.add({"v_mad_i64_i32", mad64<i32, i64>, Class::valu, 2, {Type::b32, Type::b32, Type::b64}, 0, nullptr})
      .follows(flow::carry<>);
  V2(v_min_u32, U32, U32, U32, a < b ? a : b);
  V2(v_max_u32, U32, U32, U32, a > b ? a : b);
  V2(v_min_i32, I32, I32, I32, a < b ? a : b);
  V2(v_max_i32, I32, I32, I32, a > b ? a : b);
  V3(v_min3_u32, U32, U32, U32, U32, std::min(std::min(a, b), c));
  V3(v_max3_u32, U32, U32, U32, U32, std::max(std::max(a, b), c));
  V3(v_min3_i32, I32, I32, I32, I32, std::min(std::min(a, b), c));
  V3(v_max3_i32, I32, I32, I32, I32, std::max(std::max(a, b), c));
  V3(v_med3_u32, U32, U32, U32, U32, med3_int(a, b, c));
  V3(v_med3_i32, I32, I32, I32, I32, med3_int(a, b, c));
  V3(v_sad_u32, U32, U32, U32, U32, (a > b ? a - b : b - a) + c);
  V3(v_sad_u8, U32, U32, U32, U32, sad_u8(a, b, c));
}

void add_short(Ops& t) {
  V2F(v_add_u16, valu, U16, U16, U16, kIntClamp | kStore16, clamp_u16(a + b, in.clamp));
  V2F(v_sub_u16, valu, U16, U16, U16, kIntClamp | kStore16, clamp_u16(a - b, in.clamp));
  V2F(v_subrev_u16, valu, U16, U16, U16, kIntClamp | kStore16, clamp_u16(b - a, in.clamp));
  V2F(v_add_i16, valu, I16, I16, I16, kIntClamp | kStore16 | kKeepHigh, clamp_i16(a + b, in.clamp));
  V2F(v_sub_i16, valu, I16, I16, I16, kIntClamp | kStore16 | kKeepHigh, clamp_i16(a - b, in.clamp));
  V2F(v_mul_lo_u16, valu, U16, U16, U16, kStore16, a * b & 0xffffu);
  V3F(v_mad_u16, valu, U16, U16, U16, U16, kIntClamp | kStore16 | kKeepHigh,
      in.clamp && static_cast<u64>(a) * b + c > 0xffffu ? 0xffffu : (a * b + c) & 0xffffu);
  V3F(v_mad_i16, valu, I16, I16, I16, I16, kIntClamp | kStore16 | kKeepHigh, clamp_i16(a * b + c, in.clamp));
  V2F(v_lshlrev_b16, valu, U16, U16, U16, kStore16, b << (a & 15) & 0xffffu).follows(flow::moves<0b10>);
  V2F(v_lshrrev_b16, valu, U16, U16, U16, kStore16, b >> (a & 15)).follows(flow::moves<0b10>);
  V2F(v_ashrrev_i16, valu, I16, U16, I16, kStore16, b >> (a & 15)).follows(flow::moves<0b10>);
  V2F(v_min_u16, valu, U16, U16, U16, kStore16, a < b ? a : b);
  V2F(v_max_u16, valu, U16, U16, U16, kStore16, a > b ? a : b);
  V2F(v_min_i16, valu, I16, I16, I16, kStore16, a < b ? a : b);
  V2F(v_max_i16, valu, I16, I16, I16, kStore16, a > b ? a : b);
  BITS2(v_and_b16, U16, kStore16, a & b);
  V2F(v_or_b16, valu, U16, U16, U16, kStore16, a | b).follows(flow::moves<0b11>);
  BITS2(v_xor_b16, U16, kStore16, a ^ b);
  BITS1(v_not_b16, U16, kStore16, ~a & 0xffffu);
  V3F(v_bitop3_b16, valu, U16, U16, U16, U16, kStore16 | kKeepHigh, by_table(in.aux, a, b, c) & 0xffffu)
      .follows(table_flow);
  V1F(v_mov_b16, valu, H16, H16, kStore16, a).follows(flow::moves<>);
  V3F(v_min3_u16, valu, U16, U16, U16, U16, kStore16 | kKeepHigh, std::min(std::min(a, b), c));
  V3F(v_max3_u16, valu, U16, U16, U16, U16, kStore16 | kKeepHigh, std::max(std::max(a, b), c));
  V3F(v_min3_i16, valu, I16, I16, I16, I16, kStore16 | kKeepHigh, std::min(std::min(a, b), c));
  V3F(v_max3_i16, valu, I16, I16, I16, I16, kStore16 | kKeepHigh, std::max(std::max(a, b), c));
  V3F(v_med3_u16, valu, U16, U16, U16, U16, kStore16 | kKeepHigh, med3_int(a, b, c));
  V3F(v_med3_i16, valu, I16, I16, I16, I16, kStore16 | kKeepHigh, med3_int(a, b, c));
  V1(v_cvt_i32_i16, I32, I16, a);
  V1(v_cvt_u32_u16, U32, U16, a);
}
}  // namespace

void add_valu_int(Ops& t) {
  add_vector_logic(t);
  add_vector_arithmetic(t);
  add_short(t);
  t.alias("v_clz_i32_u32", "v_ffbh_u32");
  t.alias("v_ctz_i32_b32", "v_ffbl_b32");
  t.alias("v_cls_i32", "v_ffbh_i32");
  t.alias("v_add_nc_u32", "v_add_u32");
  t.alias("v_sub_nc_u32", "v_sub_u32");
  t.alias("v_subrev_nc_u32", "v_subrev_u32");
  t.alias("v_add_nc_i32", "v_add_i32");
  t.alias("v_sub_nc_i32", "v_sub_i32");
  t.alias("v_add_co_ci_u32", "v_addc_co_u32");
  t.alias("v_sub_co_ci_u32", "v_subb_co_u32");
  t.alias("v_subrev_co_ci_u32", "v_subbrev_co_u32");
  t.alias("v_add_nc_u16", "v_add_u16");
  t.alias("v_sub_nc_u16", "v_sub_u16");
  t.alias("v_add_nc_i16", "v_add_i16");
  t.alias("v_sub_nc_i16", "v_sub_i16");
  t.alias("v_mad_co_u64_u32", "v_mad_u64_u32");
  t.alias("v_mad_co_i64_i32", "v_mad_i64_i32");
}
}  // namespace emu
