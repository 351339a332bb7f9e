// Races: two unordered accesses to a byte, at least one of them a write, at least one of them plain. Barriers
// order the waves of a workgroup. Atomics on the same address order any two waves. Workgroups without atomics
// run in parallel, unordered, and are compared at the end.
#include <algorithm>
#include <iterator>
#include <map>

#include "run/memory.hpp"

namespace emu {
namespace {
const char* name(Mode m) { return m == Mode::read ? "load" : m == Mode::write ? "store" : "atomic"; }

bool same_wave(const Touch& a, const Touch& b) { return a.wave == b.wave && a.group == b.group; }
bool unordered(const Wave& w, const Touch& before) {
  return before.wave && !w.clock.knows(before.group, before.wave - 1u, before.time);
}

// The last access of each of two waves.
void remember(Touch (&slots)[2], const Touch& now) {
  if (slots[0].wave && !same_wave(slots[0], now)) slots[1] = slots[0];
  slots[0] = now;
}
const Touch* first_unordered(const Wave& w, const Touch (&slots)[2]) {
  for (const Touch& t : slots)
    if (unordered(w, t)) return &t;
  return nullptr;
}

const Touch* conflict(const Wave& w, const ByteHistory& h, Mode mode, bool atomics, Mode& other) {
  const Touch* t = unordered(w, h.write) ? &h.write : nullptr;
  other = Mode::write;
  if (!t && mode != Mode::read) {
    t = first_unordered(w, h.read);
    other = Mode::read;
  }
  if (!t && atomics && mode != Mode::atomic) {
    t = first_unordered(w, h.atomic);
    other = Mode::atomic;
  }
  return t;
}

std::string group_name(const Launch& l, u32 linear) {
  return "workgroup (" + std::to_string(linear % l.grid[0]) + "," +
         std::to_string(linear / l.grid[0] % l.grid[1]) + "," +
         std::to_string(linear / l.grid[0] / l.grid[1]) + ")";
}

std::string describe(const Where& at, Mode mode, const Touch& before, Mode other) {
  const Program& p = *at.w.program;
  bool here = before.group == at.w.group->linear;
  return std::string(name(mode)) + " conflicts with a " + name(other) + " by " +
         (here ? "" : group_name(*at.w.launch, before.group) + " ") + "wave " +
         std::to_string(before.wave - 1) + " lane " + std::to_string(before.lane) + " at " +
         p.where(p.code[before.inst].address) +
         (here ? " without a barrier or atomic between them" : " without an atomic between them");
}

// One access, dword by dword. A conflict is reported at its first byte.
struct Access {
  const Where at;
  Mode mode;
  const char* kind;
  Touch now;
  bool atomics;           // whether the workgroup has had any
  bool reported = false;  // or nothing to report

  template <class F>
  void run(u64 address, u32 bytes, F dword_at) {
    for (u64 a = address, end = address + bytes; a < end;) {
      const u32 n = static_cast<u32>(std::min<u64>(4 - (a & 3), end - a));
      touch(dword_at(a), a, n);
      a += n;
    }
  }

  void touch(ByteHistory& h, u64 address) {
    // Known already: many lanes of a wave read the same byte.
    if (mode == Mode::read && same_wave(h.read[0], now) && h.read[0].time == now.time) return;
    Mode other;
    if (const Touch* t = reported ? nullptr : conflict(at.w, h, mode, atomics, other))
      report(address, *t, other);
    if (mode == Mode::read) remember(h.read, now);
    if (mode == Mode::write) h.write = now;
    if (mode == Mode::atomic) remember(h.atomic, now);
  }
  void touch(DwordHistory& h, u64 address, u32 bytes) {
    if (bytes == 4 && !h.is_split)
      touch(h.all, address);
    else
      touch_bytes(h, address, bytes);
  }
  // Out of line, as few accesses come here.
  [[gnu::noinline]] void report(u64 address, const Touch& before, Mode other) {
    found(at, kind, address, describe(at, mode, before, other));
    reported = true;
  }
  [[gnu::noinline]] void touch_bytes(DwordHistory& h, u64 address, u32 bytes) {
    for (u32 i = 0; i < bytes; ++i) touch(h.split()[(address + i) & 3], address + i);
  }
};

template <class F>
void track(const Where& at, u64 address, u32 bytes, Mode mode, const char* kind, Letters& letters,
           F dword_at) {
  Clock& clock = at.w.clock;
  clock.step(at.w.executed);
  Told* letter = mode == Mode::atomic ? &letters[address] : nullptr;
  if (letter) clock.hear(*letter);
  const Touch now{clock.now(), at.w.pc, at.w.group->linear, static_cast<u16>(at.w.index + 1),
                  static_cast<u16>(at.lane)};
  Access access{at, mode, kind, now, !letters.empty()};
  access.run(address, bytes, dword_at);
  if (letter) *letter = clock.tell(at.w.executed);
}

// The accesses to a run of bytes by workgroups so far, the first of each kind.
struct Seen {
  u32 group = 0;  // plus one
  Touch touch;
};
struct Across {
  Seen write, read, atomic;
};
struct Region {
  u64 end;
  Across seen;
};
using Regions = std::map<u64, Region>;  // by their first address, disjoint

struct Merge {
  Launch& l;
  const GroupTrace& g;

  Regions& regions;

  void report(const Seen& seen, const char* other, const Touch& now, Mode mode, u64 address, u64 bytes) {
    const Program& p = *l.program;
    Finding f;
    f.kind = "global-race";
    f.inst = now.inst;
    f.address = address;
    f.wave = now.wave - 1;
    f.lane = now.lane;
    f.group[0] = g.linear % l.grid[0];
    f.group[1] = g.linear / l.grid[0] % l.grid[1];
    f.group[2] = g.linear / l.grid[0] / l.grid[1];
    f.detail = std::string(name(mode)) + " conflicts with a " + other + " by " +
               group_name(l, seen.group - 1) + " at " + p.where(p.code[seen.touch.inst].address) +
               "; nothing orders workgroups";
    l.report.add(f, bytes);
  }
  void one(Mode mode, const Touch& now, const Across& a, u64 address, u64 bytes) {
    if (!now.wave) return;
    if (a.write.group)
      report(a.write, "store", now, mode, address, bytes);
    else if (mode != Mode::read && a.read.group)
      report(a.read, "load", now, mode, address, bytes);
    else if (mode != Mode::atomic && a.atomic.group)
      report(a.atomic, "atomic", now, mode, address, bytes);
  }
  void region(Across& a, const Span& s, u64 address, u64 bytes) {
    one(Mode::write, s.write, a, address, bytes);
    one(Mode::read, s.read, a, address, bytes);
    one(Mode::atomic, s.atomic, a, address, bytes);
    auto keep = [&](Seen& seen, const Touch& t) {
      if (t.wave && !seen.group) seen = {g.linear + 1, t};
    };
    keep(a.write, s.write);
    keep(a.read, s.read);
    keep(a.atomic, s.atomic);
  }
  // Splits the region containing the address, so that a region begins there. Returns the first region from
  // the address on.
  Regions::iterator split(u64 address) {
    auto next = regions.lower_bound(address);
    if (next == regions.begin()) return next;
    Region& before = std::prev(next)->second;
    if (before.end <= address) return next;
    next = regions.emplace_hint(next, address, Region{before.end, before.seen});
    before.end = address;
    return next;
  }
  void span(const Span& s) {
    const u64 end = s.address + s.size;
    split(end);
    auto next = split(s.address);
    for (u64 a = s.address; a < end;) {
      if (next == regions.end() || next->first > a) {
        const u64 until = next == regions.end() ? end : std::min(end, next->first);
        next = regions.emplace_hint(next, a, Region{until, {}});
      }
      region(next->second.seen, s, a, next->second.end - a);
      a = next->second.end;
      ++next;
    }
  }
};
}  // namespace

namespace {
DwordHistory& lds_dword(Group& g, u64 address) {
  DwordHistory& h = g.lds_history[address / 4];
  h.enter(g.lds_epoch);
  return h;
}
// Makes histories of notes free of conflicts.
void play_notes(Group& g, bool for_good) {
  for (const Note& note : g.lds_notes.notes())
    for (u64 m = note.exec; m; m &= m - 1) {
      const u32 lane = static_cast<u32>(__builtin_ctzll(m));
      const Touch then{note.time, note.inst, g.linear, note.wave, static_cast<u16>(lane)};
      Access access{{*g.waves[note.wave - 1u], g.launch->program->code[note.inst], lane},
                    note.mode,
                    "lds-race",
                    then,
                    false,
                    true};
      access.run(note.address[lane], note.bytes, [&](u64 a) -> DwordHistory& { return lds_dword(g, a); });
    }
  g.lds_notes.taken(for_good);
}
}  // namespace

bool note_lds(Wave& w, const u32* address, u32 bytes, Mode mode) {
  Group& g = *w.group;
  if (g.lds_notes.exact()) return false;
  w.lds_since_signal |= w.signalled;
  w.clock.step(w.executed);
  if (g.waves.size() == 1) return true;  // a single wave is free of races
  Note note;
  note.time = w.clock.now();
  note.inst = w.pc;
  note.wave = static_cast<u16>(w.index + 1);
  note.bytes = static_cast<u8>(bytes);
  note.mode = mode;
  note.exec = w.exec;
  std::memcpy(note.address, address, w.n * sizeof *address);
  if (g.lds_notes.full()) play_notes(g, false);
  return g.lds_notes.add(note);
}

void track_lds(const Where& at, u32 address, u32 bytes, Mode mode) {
  Group& g = *at.w.group;
  if (!g.lds_notes.exact()) play_notes(g, true);
  at.w.lds_since_signal |= at.w.signalled;
  track(at, address, bytes, mode, "lds-race", g.lds_told,
        [&](u64 a) -> DwordHistory& { return lds_dword(g, a); });
}

void track_global(const Where& at, u64 address, u32 bytes, Mode mode) {
  Group& g = *at.w.group;
  track(at, address, bytes, mode, "global-race", g.told, [&](u64 a) -> DwordHistory& {
    if (const u64 number = a / kPageBytes; number != g.last_page) {
      auto& slot = g.touched[number];
      if (!slot && !g.spare.empty()) {
        slot = std::move(g.spare.back());
        g.spare.pop_back();
      }
      if (!slot) slot = std::make_unique<Page>();
      g.page = slot.get();
      g.last_page = number;
    }
    DwordHistory& h = (*g.page)[a % kPageBytes / 4];
    h.enter(g.touched_epoch);
    return h;
  });
}

std::vector<Span> spans_of(const Group& g) {
  std::vector<u64> numbers;
  for (auto& kv : g.touched) numbers.push_back(kv.first);
  std::sort(numbers.begin(), numbers.end());
  std::vector<Span> out;
  auto same = [](const Touch& a, const Touch& b) { return a.inst == b.inst && a.wave == b.wave; };
  auto add = [&](u64 address, u32 size, const ByteHistory& h) {
    if (!h.write.wave && !h.read[0].wave && !h.atomic[0].wave) return;
    if (!out.empty() && out.back().address + out.back().size == address && same(out.back().write, h.write) &&
        same(out.back().read, h.read[0]) && same(out.back().atomic, h.atomic[0]))
      out.back().size += size;
    else
      out.push_back({address, size, h.write, h.read[0], h.atomic[0]});
  };
  for (u64 number : numbers) {
    u64 address = number * kPageBytes;
    for (const DwordHistory& h : *g.touched.at(number)) {
      const bool counts = h.epoch == g.touched_epoch;
      if (counts && !h.is_split) add(address, 4, h.all);
      for (u32 i = 0; counts && h.is_split && i < 4; ++i) add(address + i, 1, (*h.bytes)[i]);
      address += 4;
    }
  }
  return out;
}

// In order of workgroup number, not of execution, so the findings do not depend on the schedule.
void races_across(Launch& l, std::vector<GroupTrace>& groups) {
  std::sort(groups.begin(), groups.end(), [](auto& a, auto& b) { return a.linear < b.linear; });
  Regions regions;
  for (const GroupTrace& g : groups) {
    Merge merge{l, g, regions};
    for (const Span& s : g.spans) merge.span(s);
  }
}
}  // namespace emu
