#include "shadow.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "decode.hpp"
#include "memory.hpp"
#include "ops.hpp"

namespace emu {
namespace {
// How undefined bits get from the sources into the result.
enum class Way : u8 {
  any,      // one undefined source bit that matters makes the lane's (or scalar's) whole result undefined
  move,     // bits are moved about: the instruction itself, run on the undefined bits, says where to
  merge,    // bit by bit, undefined where a source is
  both,     // and: undefined unless one source has a defined 0 there; and_or
  choose,   // cndmask
  select,   // s_cselect
  compare,  // any, into a bit of a lane mask
  halves,   // any, for each half of the result
  carry,    // sums and products: from the lowest undefined bit of a source upwards
  product,  // MFMA and WMMA: by row and column
  saveexec,
  branch_scc,
  branch_vcc,
  jump,
  address,  // memory instructions: the loads and stores do the data, here the address is checked
  nothing,  // result is defined, or there is none
};

struct Rule {
  Way way = Way::any;
  u8 data = 0xff;          // move: sources that are data; the others say how, and are taken as they are
  u8 shift = 0xff;         // carry: the source that says how far the sum of those before it is shifted
  bool factors24 = false;  // carry: of the first two sources only 24 bits count
  bool sets_scc = false;
  bool scc_is_nonzero = false;
  bool needs_result = false;
};
std::vector<Rule> g_rules;  // by Inst::flow; filled under g_rules_mutex, read after prepare_shadow
std::mutex g_rules_mutex;

bool has(const std::string& s, const char* part) { return s.find(part) != std::string::npos; }
bool begins(const std::string& s, const char* part) { return s.rfind(part, 0) == 0; }

const std::map<std::string, u8>& moves() {  // data sources as a mask
  static const std::map<std::string, u8> m = {{"v_mov_b32", 1},
                                              {"v_mov_b64", 1},
                                              {"v_mov_b16", 1},
                                              {"v_accvgpr_read_b32", 1},
                                              {"v_accvgpr_write_b32", 1},
                                              {"v_accvgpr_mov_b32", 1},
                                              {"v_swap_b32", 3},
                                              {"v_readfirstlane_b32", 1},
                                              {"v_readlane_b32", 1},
                                              {"v_writelane_b32", 1},
                                              {"v_permlane16_b32", 1},
                                              {"v_permlanex16_b32", 1},
                                              {"v_permlane64_b32", 1},
                                              {"ds_bpermute_b32", 2},
                                              {"ds_permute_b32", 2},
                                              {"ds_swizzle_b32", 1},
                                              {"v_perm_b32", 3},
                                              {"v_alignbit_b32", 3},
                                              {"v_alignbyte_b32", 3},
                                              {"v_lshlrev_b32", 2},
                                              {"v_lshrrev_b32", 2},
                                              {"v_ashrrev_i32", 2},
                                              {"v_lshlrev_b64", 2},
                                              {"v_lshrrev_b64", 2},
                                              {"v_ashrrev_i64", 2},
                                              {"v_lshlrev_b16", 2},
                                              {"v_lshrrev_b16", 2},
                                              {"v_ashrrev_i16", 2},
                                              {"v_lshl_or_b32", 5},
                                              {"v_or_b32", 3},
                                              {"v_or3_b32", 7},
                                              {"v_bfi_b32", 6},
                                              {"v_bfe_u32", 1},
                                              {"v_bfe_i32", 1},
                                              {"v_bfrev_b32", 1},
                                              {"v_pack_b32_f16", 3},
                                              {"v_pk_mov_b32", 3},
                                              {"v_or_b16", 3},
                                              {"s_mov_b32", 1},
                                              {"s_mov_b64", 1},
                                              {"s_or_b32", 3},
                                              {"s_or_b64", 3},
                                              {"s_lshl_b32", 1},
                                              {"s_lshl_b64", 1},
                                              {"s_lshr_b32", 1},
                                              {"s_lshr_b64", 1},
                                              {"s_ashr_i32", 1},
                                              {"s_ashr_i64", 1},
                                              {"s_bfe_u32", 1},
                                              {"s_bfe_i32", 1},
                                              {"s_bfe_u64", 1},
                                              {"s_bfe_i64", 1},
                                              {"s_pack_ll_b32_b16", 3},
                                              {"s_pack_lh_b32_b16", 3},
                                              {"s_pack_hh_b32_b16", 3},
                                              {"s_pack_hl_b32_b16", 3},
                                              {"s_brev_b32", 1},
                                              {"s_sext_i32_i8", 1},
                                              {"s_sext_i32_i16", 1}};
  return m;
}

// The compiler leaves the upper half of a 64-bit addend undefined where it wants only the lower half of the
// sum.
const std::set<std::string>& carries() {
  static const std::set<std::string> s = {
      "v_add_u32",      "v_sub_u32",      "v_subrev_u32", "v_add3_u32",      "v_mul_lo_u32",  "v_mad_u64_u32",
      "v_mad_i64_i32",  "v_add_nc_u32",   "v_sub_nc_u32", "v_subrev_nc_u32", "v_mul_u32_u24", "v_mad_u32_u24",
      "v_lshl_add_u32", "v_add_lshl_u32", "v_xad_u32",    "v_lshl_add_u64"};
  return s;
}

bool writes_scc(const std::string& n) {
  for (const char* keep : {"s_mov", "s_mul", "s_brev", "s_ff1", "s_flbit", "s_sext", "s_bitset", "s_cselect",
                           "s_pack", "s_bfm", "s_get", "s_cmov", "s_set", "s_swap", "s_mem"})
    if (begins(n, keep)) return false;
  return true;
}
bool nonzero_scc(const std::string& n) {
  for (const char* logic :
       {"s_and", "s_or", "s_xor", "s_nand", "s_nor", "s_xnor", "s_not", "s_lsh", "s_ashr", "s_bfe"})
    if (begins(n, logic)) return !has(n, "_add_");
  return false;
}

Rule scalar_rule(const std::string& n) {
  Rule r;
  r.sets_scc = writes_scc(n);
  r.scc_is_nonzero = nonzero_scc(n);
  auto it = moves().find(n);
  if (it != moves().end())
    r.way = Way::move, r.data = it->second;
  else if (has(n, "saveexec") || has(n, "wrexec"))
    r.way = Way::saveexec;
  else if (begins(n, "s_and_b") || begins(n, "s_nand") || begins(n, "s_andn2") || begins(n, "s_and_not1"))
    r.way = Way::both;
  else if (begins(n, "s_xor") || begins(n, "s_xnor") || begins(n, "s_not") || begins(n, "s_nor") ||
           begins(n, "s_orn2") || begins(n, "s_or_not1"))
    r.way = Way::merge;
  else if (begins(n, "s_cselect"))
    r.way = Way::select;
  else if (begins(n, "s_getpc") || begins(n, "s_getreg") || begins(n, "s_mem") || begins(n, "s_set"))
    r.way = Way::nothing;
  if (begins(n, "s_setpc") || begins(n, "s_swappc")) r.way = Way::jump;
  return r;
}

Rule vector_rule(const OpInfo& op) {
  std::string n = op.name;
  Rule r;
  auto it = moves().find(n);
  if (it != moves().end())
    r.way = Way::move, r.data = it->second;
  else if (n == "v_and_b32" || n == "v_and_b16" || n == "v_and_or_b32")
    r.way = Way::both;
  else if (n == "v_xor_b32" || n == "v_xnor_b32" || n == "v_not_b32" || n == "v_xor3_b32" ||
           n == "v_xor_b16" || n == "v_not_b16")
    r.way = Way::merge;
  else if (carries().count(n))
    r.way = Way::carry,
    r.shift = begins(n, "v_lshl_add") ? 1
              : n == "v_add_lshl_u32" ? 2
                                      : 0xff,
    r.factors24 = has(n, "_u24");
  else if (begins(n, "v_cndmask"))
    r.way = Way::choose;
  else if (begins(n, "v_cmp"))
    r.way = Way::compare;
  else if ((op.flags & kPacked && !has(n, "_dot")) || begins(n, "v_cvt_pkrtz") || begins(n, "v_cvt_pk_i16") ||
           begins(n, "v_cvt_pk_u16") || begins(n, "v_cvt_pknorm"))
    r.way = Way::halves;
  return r;
}

Rule rule_of(const OpInfo& op) {
  std::string n = op.name;
  Rule r;
  switch (op.cls) {
    case Class::salu: return begins(n, "v_") ? vector_rule(op) : scalar_rule(n);
    case Class::valu:
    case Class::trans: return vector_rule(op);
    case Class::matrix: r.way = Way::product; return r;
    case Class::branch:
      r.way = has(n, "scc") ? Way::branch_scc : has(n, "vcc") ? Way::branch_vcc : Way::nothing;
      return r;
    case Class::lds:
      if (moves().count(n)) return vector_rule(op);
      r.way = Way::address;
      return r;
    case Class::vmem:
    case Class::scratch:
    case Class::smem: r.way = Way::address; return r;
    default: r.way = Way::nothing; return r;
  }
}

// ---- reading undefined bits
const u32 g_zeros[2 * kLanes] = {0};

// Of the dword of a source. Constants have none; `lanes` were made from undefined bits by DPP or SDWA.
const u32* undefined(const Wave& s, const Operand& o, u32* tmp, u32 dword = 0) {
  if (o.kind == Kind::constant || o.kind == Kind::none) return g_zeros;
  return read_raw(s, o, tmp, dword);
}
Type source_type(const Inst& in, u32 k) {
  Type t = in.op->src[0];
  for (u32 i = 1; i <= k && i < 5; ++i)
    if (in.op->src[i] != Type::any) t = in.op->src[i];
  return t;
}
bool is_half(Type t) { return t == Type::b16 || t == Type::f16; }
bool is_wide(Type t) { return t == Type::b64 || t == Type::f64; }
// An SGPR (pair) with a bit per lane: conditions and carries.
bool is_mask(const Inst& in, u32 k) {
  const char* n = in.op->name;
  if (k != 2 || in.src[k].kind != Kind::sgpr) return false;
  return std::strstr(n, "cndmask") || std::strstr(n, "addc") || std::strstr(n, "subb") ||
         std::strstr(n, "_co_ci_");
}

// bad[lane] becomes nonzero where bits of source k that matter are undefined.
void gather(const Wave& s, const Inst& in, u32 k, u32* bad) {
  const Operand& o = in.src[k];
  alignas(64) u32 t[kLanes];
  if (is_mask(in, k)) {
    u64 m = read_mask(s, o);
    lanes(s, [&](u32 i) { bad[i] |= static_cast<u32>(m >> i & 1); });
    return;
  }
  Type type = source_type(in, k);
  bool half = is_half(type) || (in.op->flags & kMix && o.flags & kHighHi);
  u32 mask = !half ? ~0u : o.flags & kHigh ? 0xffff0000u : 0xffffu;
  for (u32 d = 0; d < (is_wide(type) ? 2u : 1u); ++d) {
    const u32* p = undefined(s, o, t, d);
    lanes(s, [&](u32 i) { bad[i] |= p[i] & mask; });
  }
}
void gather_half(const Wave& s, const Inst& in, u32 k, u32 h, u32* bad) {
  const Operand& o = in.src[k];
  alignas(64) u32 t[kLanes];
  u32 mask = o.flags & (h ? kHighHi : kHigh) ? 0xffff0000u : 0xffffu;
  const u32* p = undefined(s, o, t);
  lanes(s, [&](u32 i) { bad[i] |= p[i] & mask; });
}

void give(Wave& s, const Inst& in, u32* bad) {
  for (u32 k = 0; k < in.ndst; ++k) {
    const Operand& o = in.dst[k];
    if (o.kind == Kind::sgpr) {
      u64 m = 0;
      for (u32 i = 0; i < s.n; ++i) m |= static_cast<u64>(bad[i] != 0) << i;
      write_mask(s, o, m & s.exec);
    } else if (in.op->flags & kStore16) {
      alignas(64) u32 x[kLanes];
      lanes(s, [&](u32 i) { x[i] = bad[i] ? 0xffffu : 0; });
      commit16(s, in, x);
    } else {
      alignas(64) u32 x[kLanes];
      lanes(s, [&](u32 i) { x[i] = bad[i] ? ~0u : 0; });
      for (u32 d = 0; d < o.width; ++d) commit(s, o, x, d);
    }
  }
}

// ---- the ways, as handlers that run on the shadow
void vector_any(Wave& s, const Inst& in) {
  alignas(64) u32 bad[kLanes] = {0};
  for (u32 k = 0; k < in.nsrc; ++k) gather(s, in, k, bad);
  if (std::strstr(in.op->name, "div_fmas")) {
    u64 m = s.s[kVcc] | static_cast<u64>(s.s[kVcc + 1]) << 32;
    lanes(s, [&](u32 i) { bad[i] |= static_cast<u32>(m >> i & 1); });
  }
  give(s, in, bad);
}
void vector_halves(Wave& s, const Inst& in) {
  std::string n = in.op->name;
  alignas(64) u32 bad[2][kLanes] = {{0}, {0}};
  if (!(in.op->flags & kPacked)) {  // conversions: each source makes a half
    for (u32 h = 0; h < 2; ++h) gather(s, in, h, bad[h]);
  } else if (source_type(in, 0) == Type::f32) {  // packed f32: each half is a dword
    for (u32 h = 0; h < 2; ++h)
      for (u32 k = 0; k < in.nsrc; ++k) {
        alignas(64) u32 t[kLanes];
        const u32* p = undefined(s, in.src[k], t, in.src[k].flags & (h ? kHighHi : kHigh) ? 1 : 0);
        lanes(s, [&](u32 i) { bad[h][i] |= p[i] ? ~0u : 0; });
      }
    for (u32 h = 0; h < 2; ++h) commit(s, in.dst[0], bad[h], h);
    return;
  } else {
    for (u32 h = 0; h < 2; ++h)
      for (u32 k = 0; k < in.nsrc; ++k) gather_half(s, in, k, h, bad[h]);
  }
  lanes(s, [&](u32 i) { bad[0][i] = (bad[0][i] ? 0xffffu : 0) | (bad[1][i] ? 0xffff0000u : 0); });
  commit(s, in.dst[0], bad[0]);
}
void vector_merge(Wave& s, const Inst& in) {
  alignas(64) u32 out[kLanes] = {0}, t[kLanes];
  for (u32 k = 0; k < in.nsrc; ++k) {
    const u32* p = undefined(s, in.src[k], t);
    u32 shift = is_half(source_type(in, k)) && in.src[k].flags & kHigh ? 16 : 0;
    lanes(s, [&](u32 i) { out[i] |= p[i] >> shift; });
  }
  if (in.op->flags & kStore16) return commit16(s, in, out);
  commit(s, in.dst[0], out);
}
// The real value of a source, where DPP and SDWA have not changed it.
const u32* value(const Wave& s, const Operand& o, u32* tmp) {
  return o.kind == Kind::lanes ? nullptr : read_raw(*s.real, o, tmp);
}
// Undefined bits of a source of a sum, which may be 64 bits long.
void gather_addend(const Wave& s, const Inst& in, u32 k, u64* out) {
  alignas(64) u32 t[kLanes];
  u32 mask = g_rules[in.flow].factors24 && k < 2 ? 0xffffffu : ~0u;
  const u32* p = undefined(s, in.src[k], t);
  lanes(s, [&](u32 i) { out[i] |= p[i] & mask; });
  if (!is_wide(source_type(in, k))) return;
  p = undefined(s, in.src[k], t, 1);
  lanes(s, [&](u32 i) { out[i] |= static_cast<u64>(p[i]) << 32; });
}
void shift_addends(const Wave& s, const Inst& in, u32 k, u64* out) {
  alignas(64) u32 ta[kLanes], tu[kLanes];
  u32 counts = in.dst[0].width > 1 ? 7 : 31;
  const u32 *by = value(s, in.src[k], ta), *open = undefined(s, in.src[k], tu);
  lanes(s, [&](u32 i) { out[i] = !by || open[i] & counts ? ~0ull : out[i] << (by[i] & counts); });
}
void vector_carry(Wave& s, const Inst& in) {
  alignas(64) u64 bits[kLanes] = {0};
  alignas(64) u32 lo[kLanes], hi[kLanes];
  for (u32 k = 0; k < in.nsrc; ++k)
    k == g_rules[in.flow].shift ? shift_addends(s, in, k, bits) : gather_addend(s, in, k, bits);
  u64 over = 0;
  for (u32 i = 0; i < s.n; ++i) {
    u64 x = bits[i] | (0 - (bits[i] & (0 - bits[i])));
    over |= static_cast<u64>(x != 0) << i;
    lo[i] = static_cast<u32>(x);
    hi[i] = static_cast<u32>(x >> 32);
  }
  commit(s, in.dst[0], lo);
  if (in.dst[0].width > 1) commit(s, in.dst[0], hi, 1);
  if (in.ndst > 1) write_mask(s, in.dst[1], over & s.exec);
}
void vector_both(Wave& s, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes], sa[kLanes], sb[kLanes], sc[kLanes], out[kLanes];
  const u32 *a = value(s, in.src[0], ta), *b = value(s, in.src[1], tb);
  if (!a || !b) return vector_merge(s, in);
  const u32 *ua = undefined(s, in.src[0], sa), *ub = undefined(s, in.src[1], sb);
  const u32* uc = in.nsrc > 2 ? undefined(s, in.src[2], sc) : g_zeros;
  bool half = in.op->flags & kStore16;
  u32 ha = half && in.src[0].flags & kHigh ? 16 : 0, hb = half && in.src[1].flags & kHigh ? 16 : 0;
  lanes(s, [&](u32 i) {
    u32 x = ua[i] >> ha, y = ub[i] >> hb;
    out[i] = (x & y) | (x & b[i] >> hb) | (y & a[i] >> ha) | uc[i];
  });
  if (half) return commit16(s, in, out);
  commit(s, in.dst[0], out);
}
void vector_choose(Wave& s, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes], sa[kLanes], sb[kLanes], out[kLanes];
  const u32 *a = value(s, in.src[0], ta), *b = value(s, in.src[1], tb);
  const u32 *ua = undefined(s, in.src[0], sa), *ub = undefined(s, in.src[1], sb);
  u64 open = read_mask(s, in.src[2]), picked = read_mask(*s.real, in.src[2]);
  bool half = in.op->flags & kStore16;
  u32 ha = half && in.src[0].flags & kHigh ? 16 : 0, hb = half && in.src[1].flags & kHigh ? 16 : 0;
  for (u32 i = 0; i < s.n; ++i) {
    u32 x = ua[i] >> ha, y = ub[i] >> hb, differ = a && b ? (a[i] >> ha) ^ (b[i] >> hb) : ~0u;
    out[i] = open >> i & 1 ? x | y | differ : picked >> i & 1 ? y : x;
  }
  if (half) return commit16(s, in, out);
  commit(s, in.dst[0], out);
}

void undefined_exec(Wave& s, const Inst& in, u64 m);

void vector_compare(Wave& s, const Inst& in) {
  alignas(64) u32 bad[kLanes] = {0};
  for (u32 k = 0; k < in.nsrc; ++k) gather(s, in, k, bad);
  u64 m = 0;
  for (u32 i = 0; i < s.n; ++i) m |= static_cast<u64>(bad[i] != 0) << i;
  m &= s.exec;
  if (in.ndst) write_mask(s, in.dst[0], m);
  if (std::strncmp(in.op->name, "v_cmpx", 6) == 0 && m) undefined_exec(s, in, m);
}

// A copy in which sources that only say how are taken from the real wave, and data has no modifiers.
void run_move(Wave& s, const Inst& in) {
  u8 data = g_rules[in.flow].data;
  alignas(64) u32 snapshot[3][2 * kLanes], bad[kLanes] = {0};
  Inst one = in;
  bool scalar = in.op->cls == Class::salu && in.op->name[0] == 's';
  for (u32 k = 0; k < in.nsrc && k < 3; ++k) {
    Operand& o = one.src[k];
    if (data >> k & 1) {
      if (o.kind == Kind::constant) o.value = 0, o.lanes = const_cast<u32*>(g_zeros);
      o.flags &= static_cast<u8>(~(kNeg | kAbs | kNegHi));
      continue;
    }
    if (o.kind == Kind::lanes) return vector_any(s, in);  // DPP or SDWA on what says how
    if (o.kind == Kind::constant && std::strcmp(in.op->name, "v_perm_b32") != 0) continue;
    if (!scalar)
      gather(s, in, k, bad);
    else
      bad[0] |= o.kind == Kind::sgpr ? s.s[o.index] : 0;
    o.value = o.kind == Kind::sgpr ? s.real->s[o.index] : o.value;
    std::memcpy(snapshot[k], read_raw(*s.real, o, snapshot[k]), kLanes * 4);
    if (std::strcmp(in.op->name, "v_perm_b32") == 0)  // selectors of all ones would read as undefined
      for (u32 i = 0; i < s.n; ++i)
        for (u32 b = 0; b < 32; b += 8)
          if ((snapshot[k][i] >> b & 0xff) > 12) snapshot[k][i] = (snapshot[k][i] & ~(0xffu << b)) | 12u << b;
    o.kind = o.kind == Kind::vgpr || o.kind == Kind::constant ? Kind::lanes : Kind::constant;
    o.lanes = snapshot[k];
  }
  bool open = scalar && bad[0];
  for (u32 i = 0; !scalar && i < s.n; ++i) open |= bad[i] && s.exec >> i & 1;
  if (open && !scalar) return vector_any(s, in);
  if (scalar) {  // the result of a scalar instruction with an undefined selector
    bool scc = s.scc;
    in.op->run(s, one);
    if (!g_rules[in.flow].sets_scc) s.scc = scc;
    if (open) {
      for (u32 d = 0; d < in.dst[0].width; ++d) s.s[in.dst[0].index + d] = ~0u;
      s.scc |= g_rules[in.flow].sets_scc;
    }
    return;
  }
  in.op->run(s, one);
}

u64 scalar_undefined(const Wave& s, const Operand& o) {
  if (o.kind == Kind::sgpr && o.index == kNull) return 0;
  if (o.kind == Kind::scc) return s.scc;
  if (o.kind == Kind::vccz) return s.s[kVcc] | s.s[kVcc + 1];
  if (o.kind == Kind::execz || o.kind == Kind::constant || o.kind == Kind::none) return 0;
  if (o.kind != Kind::sgpr) return read_s32(s, o);
  return o.width > 1 ? read_s64(s, o) : s.s[o.index];
}
void write_scalar(Wave& s, const Operand& o, u64 x) {
  if (o.kind != Kind::sgpr || o.index == kNull) return;
  s.s[o.index] = static_cast<u32>(x);
  if (o.width > 1) s.s[o.index + 1] = static_cast<u32>(x >> 32);
}
void run_scalar(Wave& s, const Inst& in) {
  const Rule& r = g_rules[in.flow];
  u64 a = in.nsrc > 0 ? scalar_undefined(s, in.src[0]) : 0,
      b = in.nsrc > 1 ? scalar_undefined(s, in.src[1]) : 0, x = 0;
  std::string n = in.op->name;
  switch (r.way) {
    case Way::merge: x = a | b; break;
    case Way::both: {
      u64 va = read_s64(*s.real, in.src[0]), vb = read_s64(*s.real, in.src[1]);
      if (begins(n, "s_andn2") || begins(n, "s_and_not1")) vb = ~vb;
      x = (a & b) | (a & vb) | (b & va);
      break;
    }
    case Way::select: {
      u64 va = read_s64(*s.real, in.src[0]), vb = read_s64(*s.real, in.src[1]);
      x = s.scc ? a | b | (va ^ vb) : s.real->scc ? a : b;
      break;
    }
    default: {
      u64 own = begins(n, "s_addk") || begins(n, "s_mulk") || begins(n, "s_bitset") || begins(n, "s_cmov")
                    ? scalar_undefined(s, in.dst[0])
                    : 0;
      bool carry = begins(n, "s_addc") || begins(n, "s_subb") || begins(n, "s_cmov");
      x = (a | b | own | (carry && s.scc)) ? ~0ull : 0;
    }
  }
  if (r.sets_scc) s.scc = x != 0;
  if (in.ndst) write_scalar(s, in.dst[0], x);
}

void run_product(Wave& s, const Inst& in) {
  bool mfma = in.op->name[2] == 'm';
  const char* at = std::strstr(in.op->name, "32x32") ? "32" : std::strstr(in.op->name, "16x16") ? "16" : "4";
  u32 m = static_cast<u32>(std::atoi(at)), rows = 0, columns = 0;
  alignas(64) u32 t[kLanes];
  for (u32 k = 0; k < 2; ++k)
    for (u32 d = 0; d < in.src[k].width; ++d) {
      const u32* p = undefined(s, in.src[k], t, d);
      for (u32 i = 0; i < s.n; ++i)
        if (p[i]) (k ? columns : rows) |= 1u << (i % m);
    }
  for (u32 r = 0; r < in.dst[0].width; ++r) {
    const u32* c = undefined(s, in.src[2], t, in.src[2].kind == Kind::vgpr ? r : 0);
    u32* out = s.v[in.dst[0].index + r];
    for (u32 i = 0; i < s.n; ++i) {
      u32 row = !mfma     ? r * (s.n / 16) + i / 16
                : m == 32 ? 8 * (r / 4 % 4) + 4 * (i / 32) + r % 4
                : m == 16 ? 4 * (i / 16) + r % 4
                          : r % 4;
      out[i] = c[i] || rows >> row & 1 || columns >> (i % m) & 1 ? ~0u : 0;
    }
  }
}

// ---- errors
Where at(Wave& s, const Inst& in, u32 lane) { return {*s.real, in, lane}; }
u32 first(u64 m) { return m ? static_cast<u32>(__builtin_ctzll(m)) : 0; }

void undefined_exec(Wave& s, const Inst& in, u64 m) {
  found(at(s, in, first(m)), "undefined-exec", 0,
        "EXEC would depend on bits that nothing has computed" + origin(*s.real));
}
void run_saveexec(Wave& s, const Inst& in) {
  std::string n = in.op->name;
  u64 a = scalar_undefined(s, in.src[0]) & s.all, e = s.real->exec;
  u64 m = a & (has(n, "andn2") || has(n, "and_not1") || begins(n, "s_or_") || begins(n, "s_nor") ? ~e
               : has(n, "xor") || has(n, "xnor") || has(n, "orn") || has(n, "or_not")            ? ~0ull
                                                                                                 : e);
  if (m) undefined_exec(s, in, m);
  write_scalar(s, in.dst[0], 0);
  s.scc = false;
}
void run_branch(Wave& s, const Inst& in) {
  bool open = s.scc;
  if (g_rules[in.flow].way == Way::branch_vcc) {
    u64 u = (s.s[kVcc] | static_cast<u64>(s.s[kVcc + 1]) << 32) & s.all;
    u64 v = (s.real->s[kVcc] | static_cast<u64>(s.real->s[kVcc + 1]) << 32) & s.all;
    open = u && !(v & ~u);
  }
  if (open)
    found(at(s, in, first(s.exec)), "undefined-branch", 0,
          "the branch depends on bits that nothing has computed" + origin(*s.real));
}
void run_jump(Wave& s, const Inst& in) {
  const Operand& o = in.nsrc ? in.src[0] : in.dst[0];
  if (scalar_undefined(s, o))
    found(at(s, in, 0), "undefined-branch", 0, "jump to an address that nothing has computed");
  if (in.nsrc && in.ndst) write_scalar(s, in.dst[0], 0);
}
void run_address(Wave& s, const Inst& in) {
  const char* n = in.op->name;
  bool lds = in.op->cls == Class::lds, data = !lds && (std::strstr(n, "store") || std::strstr(n, "atomic"));
  u32 skip = !data ? 99u : std::strncmp(n, "buffer", 6) == 0 ? 0u : 1u;
  u64 bad = 0;
  for (u32 k = 0; k < (lds ? std::min<u32>(in.nsrc, 1) : in.nsrc); ++k) {
    const Operand& o = in.src[k];
    if (k == skip || o.kind == Kind::none || o.kind == Kind::constant) continue;
    if (o.kind == Kind::sgpr) {
      for (u32 d = 0; d < o.width; ++d)
        if (o.index != kNull && s.s[o.index + d]) bad |= s.exec;
      continue;
    }
    alignas(64) u32 t[kLanes];
    for (u32 d = 0; d < o.width; ++d) {
      const u32* p = undefined(s, o, t, d);
      for (u32 i = 0; i < s.n; ++i) bad |= static_cast<u64>(p[i] != 0) << i;
    }
  }
  if (in.op->cls == Class::smem ? bad : bad & s.exec)
    found(at(s, in, first(bad & s.exec)), "undefined-address", 0,
          "the address depends on bits that nothing has computed" + origin(*s.real));
}
void run_nothing(Wave& s, const Inst& in) {
  for (u32 k = 0; k < in.ndst; ++k) write_scalar(s, in.dst[k], 0);
}

Handler handler_of(const Inst& in, const Rule& r) {
  bool scalar = in.op->cls == Class::salu && in.op->name[0] == 's';
  switch (r.way) {
    case Way::move: return run_move;
    case Way::saveexec: return run_saveexec;
    case Way::branch_scc:
    case Way::branch_vcc: return run_branch;
    case Way::jump: return run_jump;
    case Way::address: return run_address;
    case Way::nothing: return run_nothing;
    case Way::product: return run_product;
    case Way::choose: return vector_choose;
    case Way::compare: return vector_compare;
    case Way::halves: return vector_halves;
    case Way::carry: return vector_carry;
    case Way::merge: return scalar ? run_scalar : vector_merge;
    case Way::both: return scalar ? run_scalar : vector_both;
    case Way::select: return run_scalar;
    case Way::any: return scalar ? run_scalar : vector_any;
  }
  return nullptr;
}

u16 flow_of(const OpInfo* op) {
  static std::map<const OpInfo*, u16> known;
  auto [it, is_new] = known.emplace(op, static_cast<u16>(g_rules.size()));
  if (is_new) g_rules.push_back(rule_of(*op));
  return it->second;
}
Inst shadowed(const Inst& in) {
  Inst out = in;
  out.flow = flow_of(in.op);
  Handler h = handler_of(out, g_rules[out.flow]);
  (in.inner ? out.inner : out.run) = h;
  if (in.dual) out.dual = std::make_shared<Inst>(shadowed(*in.dual));
  return out;
}

// Whether an operand has undefined bits at all.
bool touched(const Wave& s, const Operand& o) {
  switch (o.kind) {
    case Kind::vgpr: return is_dirty(s, o, o.width);
    case Kind::sgpr:
      for (u32 d = 0; d < o.width; ++d)
        if (s.s[o.index + d] && o.index != kNull) return true;
      return false;
    case Kind::scc: return s.scc;
    case Kind::vccz: return s.s[kVcc] | s.s[kVcc + 1];
    default: return false;
  }
}
bool touched(const Wave& s, const Inst& in) {
  for (u32 k = 0; k < in.nsrc; ++k)
    if (touched(s, in.src[k])) return true;
  for (u32 k = 0; k < in.ndst; ++k)
    if (touched(s, in.dst[k])) return true;
  return in.dual && touched(s, *in.dual);
}
}  // namespace

bool is_dirty(const Wave& s, const Operand& o, u32 dwords) {
  if (o.kind != Kind::vgpr) return false;
  for (u32 d = 0; d < dwords; ++d)
    if (s.dirty[o.index + d]) return true;
  return false;
}
void update_dirty(Wave& s, const Operand& o, u32 dwords) {
  if (o.kind != Kind::vgpr) return;
  for (u32 d = 0; d < dwords; ++d) {
    u32 any = 0;
    const u32* p = s.v[o.index + d];
    lanes(s, [&](u32 i) { any |= p[i]; });
    s.dirty[o.index + d] = any != 0;
  }
}
void clear_shadow(Wave& s, const Operand& o, u32 dwords) {
  for (u32 d = 0; d < dwords; ++d) commit(s, o, g_zeros, d);
}
void follow_exec(Wave& s) {
  if (s.exec == s.real->exec) return;
  s.exec = s.real->exec;
  std::memcpy(s.em, s.real->em, sizeof s.em);
}
u64 undefined_data(const Wave& w, const Operand& data, u32 bytes, bool high, u32 lane) {
  if (data.kind == Kind::vgpr && !is_dirty(*w.shadow, data, (bytes + 3) / 4)) return 0;
  alignas(64) u32 t[kLanes];
  u64 out = 0;
  for (u32 d = 0; d < (bytes + 3) / 4; ++d) {
    u32 x = undefined(*w.shadow, data, t, d)[lane] >> (high ? 16 : 0);
    for (u32 b = 0; b < 4 && 4 * d + b < bytes; ++b)
      if (x >> (8 * b) & 0xff) out |= 1ull << (4 * d + b);
  }
  return out;
}

void prepare_shadow(const Program& program) {
  Program& p = const_cast<Program&>(program);  // a cache of the program, filled once
  std::lock_guard<std::mutex> lock(g_rules_mutex);
  if (!p.shadow_code.empty()) return;
  p.shadow_code.reserve(p.code.size());
  for (const Inst& in : p.code) p.shadow_code.push_back(shadowed(in));
}

void start_shadow(Wave& w, u32 sgprs) {
  if (!w.shadow) w.shadow.reset(new Wave);
  Wave& s = *w.shadow;
  s.real = &w;
  s.n = w.n;
  s.all = w.all;
  s.program = w.program;
  s.launch = w.launch;
  s.group = w.group;
  s.exec = ~w.exec;
  follow_exec(s);
  s.scc = true;
  std::fill(&s.v[0][0], &s.v[0][0] + kVgprs * kLanes, ~0u);
  std::fill(s.dirty, s.dirty + kVgprs, true);
  std::fill(s.s, s.s + kSgprs, ~0u);
  std::fill(s.s, s.s + sgprs, 0u);
  s.s[kNull] = s.s[kExec] = s.s[kExec + 1] = 0;
  // Work item ids; flat_scratch, which the launch sets up where it is not computed.
  for (u32 r = 0; r < 3; ++r)
    if (r == 0 || !(w.program->gfx == Gfx::gfx942 || w.program->gfx == Gfx::gfx1100))
      for (u32 i = 0; i < w.n; ++i)
        if (w.launched >> i & 1 && r <= (w.launch->kernel->rsrc2 >> 11 & 3)) s.v[r][i] = 0;
  if (w.program->gfx == Gfx::gfx942) s.s[102] = s.s[103] = 0;
}

void shadow_step(Wave& w, const Inst& real) {
  Wave& s = *w.shadow;
  const Inst& in = w.program->shadow_code[w.pc];
  Way way = g_rules[in.flow].way;
  bool always = way == Way::branch_scc || way == Way::branch_vcc || s.scc;
  if (!always && !touched(s, in) && !std::strstr(in.op->name, "div_fmas")) return;
  (void)real;
  follow_exec(s);
  in.run(s, in);
  if (s.s[kExec] | s.s[kExec + 1]) {
    u64 m = (s.s[kExec] | static_cast<u64>(s.s[kExec + 1]) << 32) & s.all;
    s.s[kExec] = s.s[kExec + 1] = 0;
    if (m) undefined_exec(s, in, m);
  }
  if (way == Way::address) return;  // the destination of a load is done when it is loaded
  for (const Inst* i = &in; i; i = i->dual.get())
    for (u32 k = 0; k < i->ndst; ++k) update_dirty(s, i->dst[k], i->dst[k].width);
}

void shadow_result(Wave& w, const Inst& in) {
  Wave& s = *w.shadow;
  if (!s.scc || in.op->cls != Class::salu || !in.ndst || in.dst[0].kind != Kind::sgpr) return;
  const Rule& r = g_rules[w.program->shadow_code[w.pc].flow];
  if (!r.scc_is_nonzero) return;
  const Operand& o = in.dst[0];  // SCC is whether the result is not zero: a defined 1 decides
  for (u32 d = 0; d < o.width; ++d)
    if (w.s[o.index + d] & ~s.s[o.index + d]) s.scc = false;
}
}  // namespace emu
