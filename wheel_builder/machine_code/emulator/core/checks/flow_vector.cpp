// Undefined bits in vector operations.
#include "checks/flow.hpp"

#include <algorithm>

namespace emu::flow {
namespace {
const u32 g_zeros[2 * kLanes] = {0};

bool is_half(Type t) { return t == Type::b16 || t == Type::f16; }
bool is_wide(Type t) { return t == Type::b64 || t == Type::f64; }

// bad[lane] becomes nonzero for undefined relevant bits of source k.
void gather(const Wave& s, const Inst& in, u32 k, u32* bad) {
  const Operand& o = in.src[k];
  const Type type = source_type(*in.op, k);
  if (type == Type::mask) {
    const u64 m = o.kind == Kind::sgpr ? read_mask(s, o) : 0;
    return lanes(s, [&](u32 i) { bad[i] |= static_cast<u32>(m >> i & 1); });
  }
  alignas(64) u32 t[kLanes];
  const bool half = is_half(type) || (in.op->flags & kMix && o.flags & kHighHi);
  const u32 mask = !half ? ~0u : o.flags & kHigh ? 0xffff0000u : 0xffffu;
  for (u32 d = 0; d < (is_wide(type) ? 2u : 1u); ++d) {
    const u32* p = undefined(s, o, t, d);
    lanes(s, [&](u32 i) { bad[i] |= p[i] & mask; });
  }
}
void gather_all(const Wave& s, const Inst& in, u32* bad) {
  for (u32 k = 0; k < in.nsrc; ++k) gather(s, in, k, bad);
  if (!(in.op->flags & kReadsVcc)) return;
  const u64 m = s.s[kVcc] | static_cast<u64>(s.s[kVcc + 1]) << 32;
  lanes(s, [&](u32 i) { bad[i] |= static_cast<u32>(m >> i & 1); });
}
u64 mask_of(const Wave& s, const u32* bad) {
  u64 m = 0;
  for (u32 i = 0; i < s.n; ++i) m |= static_cast<u64>(bad[i] != 0) << i;
  return m & s.exec;
}

void give(Wave& s, const Inst& in, const u32* bad) {
  alignas(64) u32 x[kLanes];
  lanes(s, [&](u32 i) { x[i] = bad[i] ? ~0u : 0; });
  for (u32 k = 0; k < in.ndst; ++k) {
    const Operand& o = in.dst[k];
    if (o.kind == Kind::sgpr)
      write_mask(s, o, mask_of(s, bad));
    else if (in.op->flags & kStore16)
      commit16(s, in, x);
    else
      for (u32 d = 0; d < o.width; ++d) commit(s, o, x, d);
  }
}
void give_halves(Wave& s, const Inst& in, u32 (*bad)[kLanes]) {
  lanes(s, [&](u32 i) { bad[0][i] = (bad[0][i] ? 0xffffu : 0) | (bad[1][i] ? 0xffff0000u : 0); });
  commit(s, in.dst[0], bad[0]);
}

// The value of a source. Null if DPP or SDWA have changed it.
const u32* value(const Wave& s, const Operand& o, u32* tmp) {
  return o.kind == Kind::lanes ? nullptr : read_raw(*s.real, o, tmp);
}
u32 half_shift(const Inst& in, u32 k) { return in.op->flags & kStore16 && in.src[k].flags & kHigh ? 16 : 0; }

// Undefined bits of a sum's source, up to 64 bits long.
void add_addend(const Wave& s, const Inst& in, u32 k, u32 mask, u64* out) {
  alignas(64) u32 t[kLanes];
  const u32* p = undefined(s, in.src[k], t);
  lanes(s, [&](u32 i) { out[i] |= p[i] & mask; });
  if (!is_wide(source_type(*in.op, k))) return;
  p = undefined(s, in.src[k], t, 1);
  lanes(s, [&](u32 i) { out[i] |= static_cast<u64>(p[i]) << 32; });
}
void shift_addends(const Wave& s, const Inst& in, u32 k, u64* out) {
  alignas(64) u32 ta[kLanes], tu[kLanes];
  const u32 counts = in.dst[0].width > 1 ? 7 : 31;
  const u32 *by = value(s, in.src[k], ta), *open = undefined(s, in.src[k], tu);
  lanes(s, [&](u32 i) { out[i] = !by || open[i] & counts ? ~0ull : out[i] << (by[i] & counts); });
}

// A moved source: only its undefined bits, without modifiers.
void as_data(Operand& o) {
  if (o.kind == Kind::constant) o.value = 0, o.lanes = const_cast<u32*>(g_zeros);
  o.flags &= static_cast<u8>(~(kNeg | kAbs | kNegHi));
}
// A source controlling the move, with the wave's values. False if it is undefined or unknown.
bool as_selector(const Wave& s, const Inst& in, u32 k, Operand& o, u32* values) {
  if (o.kind == Kind::lanes) return false;
  alignas(64) u32 bad[kLanes] = {0};
  gather(s, in, k, bad);
  if (mask_of(s, bad)) return false;
  std::memcpy(values, read_raw(*s.real, o, values), kLanes * sizeof *values);
  if (o.kind == Kind::sgpr) o.value = s.real->s[o.index];
  o.kind = o.kind == Kind::vgpr || o.kind == Kind::constant ? Kind::lanes : Kind::constant;
  o.lanes = values;
  return true;
}
}  // namespace

const u32* undefined(const Wave& s, const Operand& o, u32* tmp, u32 dword) {
  if (o.kind == Kind::constant || o.kind == Kind::none) return g_zeros;
  return read_raw(s, o, tmp, dword);
}

void any(Wave& s, const Inst& in) {
  alignas(64) u32 bad[kLanes] = {0};
  gather_all(s, in, bad);
  give(s, in, bad);
}

void cvt_pair(Wave& s, const Inst& in) {
  alignas(64) u32 bad[2][kLanes] = {{0}, {0}};
  for (u32 h = 0; h < 2; ++h) gather(s, in, h, bad[h]);
  give_halves(s, in, bad);
}
void packed(Wave& s, const Inst& in) {
  alignas(64) u32 bad[2][kLanes] = {{0}, {0}}, t[kLanes];
  for (u32 h = 0; h < 2; ++h)
    for (u32 k = 0; k < in.nsrc; ++k) {
      const u32 mask = in.src[k].flags & (h ? kHighHi : kHigh) ? 0xffff0000u : 0xffffu;
      const u32* p = undefined(s, in.src[k], t);
      lanes(s, [&](u32 i) { bad[h][i] |= p[i] & mask; });
    }
  give_halves(s, in, bad);
}
void packed_f32(Wave& s, const Inst& in) {
  alignas(64) u32 bad[2][kLanes] = {{0}, {0}}, t[kLanes];
  for (u32 h = 0; h < 2; ++h)
    for (u32 k = 0; k < in.nsrc; ++k) {
      const u32* p = undefined(s, in.src[k], t, in.src[k].flags & (h ? kHighHi : kHigh) ? 1 : 0);
      lanes(s, [&](u32 i) { bad[h][i] |= p[i] ? ~0u : 0; });
    }
  for (u32 h = 0; h < 2; ++h) commit(s, in.dst[0], bad[h], h);
}

void sum(Wave& s, const Inst& in, u32 shift, u32 factor_bits) {
  alignas(64) u64 bits[kLanes] = {0};
  alignas(64) u32 lo[kLanes], hi[kLanes];
  const u32 factor = factor_bits == 32 ? ~0u : (1u << factor_bits) - 1;
  for (u32 k = 0; k < in.nsrc; ++k)
    k == shift ? shift_addends(s, in, k, bits) : add_addend(s, in, k, k < 2 ? factor : ~0u, bits);
  u64 over = 0;
  for (u32 i = 0; i < s.n; ++i) {
    const u64 x = bits[i] | (0 - (bits[i] & (0 - bits[i])));
    over |= static_cast<u64>(x != 0) << i;
    lo[i] = static_cast<u32>(x);
    hi[i] = static_cast<u32>(x >> 32);
  }
  commit(s, in.dst[0], lo);
  if (in.dst[0].width > 1) commit(s, in.dst[0], hi, 1);
  if (in.ndst > 1) write_mask(s, in.dst[1], over & s.exec);
}

BitSources::BitSources(const Wave& s, const Inst& in) : value{}, open{}, known(true) {
  alignas(64) u32 t[kLanes];
  for (u32 k = 0; k < in.nsrc && k < 3; ++k) {
    const u32 shift = half_shift(in, k);
    const u32* p = undefined(s, in.src[k], t);
    lanes(s, [&](u32 i) { open[k][i] = p[i] >> shift; });
    p = emu::flow::value(s, in.src[k], t);
    if (!p) known = false;
    if (p) lanes(s, [&](u32 i) { value[k][i] = p[i] >> shift; });
  }
}
void give_bits(Wave& s, const Inst& in, const u32* open) {
  if (in.op->flags & kStore16)
    commit16(s, in, open);
  else
    commit(s, in.dst[0], open);
}

void choose(Wave& s, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes], sa[kLanes], sb[kLanes], out[kLanes];
  const u32 *a = value(s, in.src[0], ta), *b = value(s, in.src[1], tb);
  const u32 *ua = undefined(s, in.src[0], sa), *ub = undefined(s, in.src[1], sb);
  const u64 open = read_mask(s, in.src[2]), picked = read_mask(*s.real, in.src[2]);
  const u32 ha = half_shift(in, 0), hb = half_shift(in, 1);
  for (u32 i = 0; i < s.n; ++i) {
    const u32 x = ua[i] >> ha, y = ub[i] >> hb, differ = a && b ? (a[i] >> ha) ^ (b[i] >> hb) : ~0u;
    out[i] = open >> i & 1 ? x | y | differ : picked >> i & 1 ? y : x;
  }
  give_bits(s, in, out);
}

void compare(Wave& s, const Inst& in) {
  alignas(64) u32 bad[kLanes] = {0};
  gather_all(s, in, bad);
  if (in.ndst) write_mask(s, in.dst[0], mask_of(s, bad));
}
void compare_exec(Wave& s, const Inst& in) {
  alignas(64) u32 bad[kLanes] = {0};
  gather_all(s, in, bad);
  const u64 m = mask_of(s, bad);
  if (in.ndst) write_mask(s, in.dst[0], m);
  if (m) undefined_exec(s, in, m);
}

void move_bits(Wave& s, const Inst& in, u32 data) {
  alignas(64) u32 values[3][kLanes];
  Inst one = in;
  for (u32 k = 0; k < in.nsrc && k < 3; ++k) {
    if (data >> k & 1)
      as_data(one.src[k]);
    else if (in.src[k].kind != Kind::constant && !as_selector(s, in, k, one.src[k], values[k]))
      return any(s, in);
  }
  in.op->run(s, one);
}
void byte_permute(Wave& s, const Inst& in) {
  alignas(64) u32 selectors[kLanes];
  Inst one = in;
  as_data(one.src[0]);
  as_data(one.src[1]);
  if (!as_selector(s, in, 2, one.src[2], selectors)) return any(s, in);
  // A selector above 12 gives ones, which are defined. 12 gives zeros.
  lanes(s, [&](u32 i) {
    for (u32 b = 0; b < 32; b += 8)
      if ((selectors[i] >> b & 0xff) > 12) selectors[i] = (selectors[i] & ~(0xffu << b)) | 12u << b;
  });
  in.op->run(s, one);
}
}  // namespace emu::flow
