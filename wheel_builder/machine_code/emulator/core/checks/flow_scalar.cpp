// Undefined bits in scalar operations, and where they would decide something: EXEC, a branch, an address.
#include <algorithm>

#include "checks/flow.hpp"
#include "run/memory.hpp"

namespace emu::flow {
namespace {
u32 first(u64 m) { return m ? static_cast<u32>(__builtin_ctzll(m)) : 0; }
void report(Wave& s, const Inst& in, u64 lanes, const char* kind, const std::string& detail) {
  found({*s.real, in, first(lanes)}, kind, 0, detail + origin(*s.real));
}
void write_scalar(Wave& s, const Operand& o, u64 x) {
  if (o.kind != Kind::sgpr || o.index == kNull) return;
  s.s[o.index] = static_cast<u32>(x);
  if (o.width > 1) s.s[o.index + 1] = static_cast<u32>(x >> 32);
}
u64 vcc(const Wave& w) { return (w.s[kVcc] | static_cast<u64>(w.s[kVcc + 1]) << 32) & w.all; }

// Lanes whose address has undefined bits in this source. All lanes share an SGPR.
u64 lanes_undefined(const Wave& s, const Operand& o) {
  u64 bad = 0;
  alignas(64) u32 t[kLanes];
  for (u32 d = 0; d < o.width; ++d) {
    if (o.kind == Kind::sgpr) {
      if (o.index != kNull && s.s[o.index + d]) bad = ~u64{0};
      continue;
    }
    const u32* p = undefined(s, o, t, d);
    for (u32 i = 0; i < s.n; ++i) bad |= static_cast<u64>(p[i] != 0) << i;
  }
  return bad;
}
}  // namespace

u64 scalar_undefined(const Wave& s, const Operand& o) {
  switch (o.kind) {
    case Kind::scc: return s.scc;
    case Kind::vccz: return s.s[kVcc] | s.s[kVcc + 1];
    case Kind::sgpr:
      if (o.index == kNull) return 0;
      return o.width > 1 ? read_s64(s, o) : s.s[o.index];
    default: return 0;
  }
}
void give_scalar(Wave& s, const Inst& in, u64 open) {
  if (in.op->flags & kSetsScc) s.scc = open != 0;
  if (in.ndst) write_scalar(s, in.dst[0], open);
}
void scalar(Wave& s, const Inst& in) {
  u64 open = in.op->flags & kReadsScc && s.scc;
  for (u32 k = 0; k < in.nsrc; ++k) open |= scalar_undefined(s, in.src[k]);
  give_scalar(s, in, open ? ~u64{0} : 0);
}
void select(Wave& s, const Inst& in) {
  const u64 a = scalar_undefined(s, in.src[0]), b = scalar_undefined(s, in.src[1]);
  const u64 differ = read_scalar(*s.real, in.src[0]) ^ read_scalar(*s.real, in.src[1]);
  give_scalar(s, in, s.scc ? a | b | differ : s.real->scc ? a : b);
}
void scalar_move_bits(Wave& s, const Inst& in, u32 data) {
  Inst one = in;
  bool open = false;
  for (u32 k = 0; k < in.nsrc; ++k) {
    Operand& o = one.src[k];
    if (data >> k & 1) {
      if (o.kind == Kind::constant) o.value = 0;
    } else {
      open |= scalar_undefined(s, o) != 0;
      o.value = read_s32(*s.real, o);
      o.kind = Kind::constant;
    }
  }
  if (open) return give_scalar(s, in, ~u64{0});
  const bool scc = s.scc;
  in.op->run(s, one);
  if (!(in.op->flags & kSetsScc)) s.scc = scc;
}

void undefined_exec(Wave& s, const Inst& in, u64 lanes) {
  report(s, in, lanes, "undefined-exec", "EXEC would depend on bits that nothing has computed");
}
void branch_scc(Wave& s, const Inst& in) {
  if (s.scc)
    report(s, in, s.exec, "undefined-branch", "the branch depends on bits that nothing has computed");
}
void branch_vcc(Wave& s, const Inst& in) {
  const u64 open = vcc(s);  // a defined 1 decides
  if (open && !(vcc(*s.real) & ~open))
    report(s, in, s.exec, "undefined-branch", "the branch depends on bits that nothing has computed");
}
void jump(Wave& s, const Inst& in) {
  const Operand& to = in.nsrc ? in.src[0] : in.dst[0];
  if (scalar_undefined(s, to))
    report(s, in, 1, "undefined-branch", "jump to an address that nothing has computed");
  if (in.nsrc && in.ndst) write_scalar(s, in.dst[0], 0);
}
void check_address(Wave& s, const Inst& in, u32 first_source, u32 last, u32 data) {
  u64 bad = 0;
  for (u32 k = first_source; k < last; ++k)
    if (k != data && in.src[k].kind != Kind::none && in.src[k].kind != Kind::constant)
      bad |= lanes_undefined(s, in.src[k]);
  if (bad & s.exec)
    report(s, in, bad & s.exec, "undefined-address", "the address depends on bits that nothing has computed");
}
void lds_address(Wave& s, const Inst& in) { check_address(s, in, 0, std::min<u32>(in.nsrc, 1), kNoData); }

void defined(Wave& s, const Inst& in) {
  for (u32 k = 0; k < in.ndst; ++k) write_scalar(s, in.dst[k], 0);
}
}  // namespace emu::flow
