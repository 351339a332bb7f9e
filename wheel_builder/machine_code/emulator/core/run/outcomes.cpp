#include "run/outcomes.hpp"

#include <cstring>

namespace emu {
namespace {
bool starts(const Inst& in, const char* text) {
  return std::strncmp(in.op->name, text, std::strlen(text)) == 0;
}

// f(word) for each register word of each destination.
template <class F>
void destinations(const Wave& w, const Inst& in, F f) {
  for (const Inst* each = &in; each; each = each->dual.get())
    for (u32 k = 0; k < each->ndst; ++k) {
      const Operand& o = each->dst[k];
      for (u32 d = 0; d < o.width; ++d) {
        if (o.kind == Kind::sgpr && o.index != kNull) f(w.s[o.index + d]);
        if (o.kind == Kind::vgpr)
          for (u32 i = 0; i < w.n; ++i) f(w.v[o.index + d][i]);
      }
    }
}

bool meets_equal(const Wave& w, const Inst& in) {
  if (in.nsrc < 2 || in.src[0].width != 1) return false;
  if (starts(in, "s_cmp")) return read_s32(w, in.src[0]) == read_s32(w, in.src[1]);
  if (!starts(in, "v_cmp")) return false;
  alignas(64) u32 ta[kLanes], tb[kLanes];
  const u32 *a = read_raw(w, in.src[0], ta), *b = read_raw(w, in.src[1], tb);
  for (u32 i = 0; i < w.n; ++i)
    if (w.exec >> i & 1 && a[i] == b[i]) return true;
  return false;
}

u8 ways(u64 mask, u64 exec) {
  return static_cast<u8>((mask & exec ? kTrue : 0) | (exec & ~mask ? kFalse : 0));
}
}  // namespace

void Outcomes::before(const Wave& w, const Inst& in) {
  words_.clear();
  destinations(w, in, [&](u32 x) { words_.push_back(x); });
  exec_ = w.exec;
  equal_ = meets_equal(w, in);
}

u8 Outcomes::after(const Wave& w, const Inst& in) const {
  u8 found = equal_ ? kEqual : 0;
  size_t at = 0;
  destinations(w, in, [&](u32 x) { found |= x != words_[at++] ? kChanged : 0; });
  if (starts(in, "v_cmpx"))
    found |= ways(w.exec, exec_);
  else if (starts(in, "v_cmp"))
    found |= ways(read_mask(w, in.dst[0]), exec_);
  else if (in.op->cls == Class::valu && in.ndst == 2)
    found |= ways(read_mask(w, in.dst[1]), exec_);
  else if (starts(in, "v_cndmask"))
    found |= ways(read_mask(w, in.src[2]), exec_);
  else if (in.op->cls == Class::branch)
    found |= w.next != w.pc + 1 ? kTrue : kFalse;
  else if (in.op->flags & kSetsScc)
    found |= w.scc ? kTrue : kFalse;
  return found;
}
}  // namespace emu
