#include "checks/shadow.hpp"

#include <algorithm>

#include "checks/flow.hpp"
#include "run/memory.hpp"

namespace emu {
namespace {
bool any_dirty(const bool* p, u32 count) {
  static_assert(sizeof(bool) == 1, "read as bytes");
  u64 any = 0;
  u32 at = 0;
  for (; at + 8 <= count; at += 8) {
    u64 eight;
    std::memcpy(&eight, p + at, 8);
    any |= eight;
  }
  for (; at < count; ++at) any |= p[at];
  return any;
}

// Whether an operand has any undefined bits.
inline bool touched(const Wave& s, const Operand& o) {
  if (o.kind == Kind::vgpr) return o.width == 1 ? s.dirty[o.index] : any_dirty(s.dirty + o.index, o.width);
  switch (o.kind) {
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
  if (in.op->flags & kReadsVcc && (s.s[kVcc] | s.s[kVcc + 1])) return true;
  return in.dual && touched(s, *in.dual);
}
}  // namespace

bool is_dirty(const Wave& s, const Operand& o, u32 dwords) {
  if (o.kind != Kind::vgpr) return false;
  return any_dirty(s.dirty + o.index, dwords);
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
  alignas(64) static const u32 zeros[kLanes] = {0};
  for (u32 d = 0; d < dwords; ++d) commit(s, o, zeros, d);
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
    u32 x = flow::undefined(*w.shadow, data, t, d)[lane] >> (high ? 16 : 0);
    for (u32 b = 0; b < 4 && 4 * d + b < bytes; ++b)
      if (x >> (8 * b) & 0xff) out |= 1ull << (4 * d + b);
  }
  return out;
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
  const fa::ArchTraits arch = fa::traits(w.program->gfx);
  if (arch.workgroup_ids_in_ttmps) std::fill(s.s + kTtmp + 7, s.s + kTtmp + 10, 0u);
  // Work item ids, and flat_scratch if the launch sets it instead of the kernel.
  for (u32 r = 0; r < 3; ++r)
    if (r == 0 || !w.program->packed_ids())
      for (u32 i = 0; i < w.n; ++i)
        if (w.launched >> i & 1 && r <= (w.launch->kernel->rsrc2 >> 11 & 3)) s.v[r][i] = 0;
  if (w.program->gfx9() && arch.architected_flat_scratch) s.s[102] = s.s[103] = 0;
}

void shadow_step(Wave& w, const Inst& in) {
  Wave& s = *w.shadow;
  if (!s.scc && !touched(s, in)) return;
  follow_exec(s);
  in.wrapped ? in.run(s, in) : operate(s, in);
  if (s.s[kExec] | s.s[kExec + 1]) {
    const u64 m = (s.s[kExec] | static_cast<u64>(s.s[kExec + 1]) << 32) & s.all;
    s.s[kExec] = s.s[kExec + 1] = 0;
    if (m) flow::undefined_exec(s, in, m);
  }
  for (const Inst* i = &in; i; i = i->dual.get())
    for (u32 k = 0; k < i->ndst; ++k) update_dirty(s, i->dst[k], i->dst[k].width);
}

void shadow_result(Wave& w, const Inst& in) {
  Wave& s = *w.shadow;
  if (!s.scc || !(in.op->flags & kSccNonzero) || !in.ndst) return;
  const Operand& o = in.dst[0];  // a defined 1 decides
  for (u32 d = 0; d < o.width; ++d)
    if (w.s[o.index + d] & ~s.s[o.index + d]) s.scc = false;
}
}  // namespace emu
