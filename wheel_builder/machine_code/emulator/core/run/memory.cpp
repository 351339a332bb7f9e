#include "run/memory.hpp"

#include <algorithm>
#include <cstdint>

namespace emu {
namespace {
const char* verb(Mode m) { return m == Mode::read ? "load" : m == Mode::write ? "store" : "atomic"; }

std::string nearest(const Launch& l, u64 address) {
  const Buffer* best = nullptr;
  u64 distance = ~0ull;
  for (const Buffer& b : l.buffers) {
    u64 d = address < b.base ? b.base - address : address - (b.base + b.size - 1);
    if (d < distance) {
      distance = d;
      best = &b;
    }
  }
  if (!best || distance > (1u << 20)) return "far from every registered buffer";
  bool before = address < best->base;
  return std::to_string(before ? distance : distance - 1) + " bytes " +
         (before ? "before the start" : "past the end") + " of buffer '" + best->name + "' (" +
         std::to_string(best->size) + " bytes)";
}

// The hardware is set to allow unaligned loads and stores. In a kernel with only aligned types in its source
// they are still an error. Atomics must always be aligned.
void check_alignment(const Where& at, u64 address, u32 bytes, Mode mode, const char* kind) {
  if (!(address & alignment_mask(bytes))) return;
  if (mode != Mode::atomic && !at.w.launch->check(Check::align)) return;
  found(at, kind, address,
        std::string(verb(mode)) + " of " + std::to_string(bytes) + " bytes is not aligned to " +
            std::to_string(alignment_mask(bytes) + 1));
}

// Whether these are whole dwords of written bytes, as nearly always.
bool all_defined(const u8* undefined, u32 bytes) {
  if ((reinterpret_cast<std::uintptr_t>(undefined) | bytes) & 3) return false;
  u32 any = 0;
  for (u32 i = 0; i < bytes; i += 4)
    any |= __atomic_load_n(reinterpret_cast<const u32*>(undefined + i), __ATOMIC_RELAXED);
  return !any;
}

// Unwritten bytes among these, and bytes left undefined by a store or atomic. Storing undefined data is an
// error only for global memory (see global_slow).
void track_definedness(const Where& at, u8* undefined, u32 bytes, Mode mode) {
  u64 mask = 0, stored = mode == Mode::read ? 0 : at.w.stored_undefined;
  if (!stored && all_defined(undefined, bytes)) return;
  for (u32 i = 0; i < bytes; ++i) {
    if (mode != Mode::write && __atomic_load_n(undefined + i, __ATOMIC_RELAXED)) mask |= 1ull << i;
    if (mode != Mode::read)
      __atomic_store_n(undefined + i, static_cast<u8>(stored >> i & 1), __ATOMIC_RELAXED);
  }
  at.w.undefined_bytes |= mask;
  if (mask) at.w.origin = at.w.pc + 1;
}
}  // namespace

const Buffer* find_buffer(const Launch& l, u64 address) {
  auto it = std::upper_bound(l.buffers.begin(), l.buffers.end(), address,
                             [](u64 a, const Buffer& b) { return a < b.base; });
  if (it == l.buffers.begin()) return nullptr;
  --it;
  return address - it->base < it->size ? &*it : nullptr;
}

void found(const Where& at, const char* kind, u64 address, const std::string& detail) {
  Finding f;
  f.kind = kind;
  f.detail = detail;
  f.inst = static_cast<u32>(at.w.pc);
  std::copy(at.w.group->id, at.w.group->id + 3, f.group);
  f.wave = static_cast<int>(at.w.index);
  f.lane = static_cast<int>(at.lane);
  f.address = address;
  at.w.group->report.add(f);
}

std::string origin(const Wave& w) {
  if (!w.origin) return "";
  const Program& p = *w.program;
  return "; the wave's last load of memory that nothing has written was at " +
         p.where(p.code[w.origin - 1].address);
}

u8* global_slow(const Where& at, u64 address, u32 bytes, Mode mode) {
  Launch& l = *at.w.launch;
  const Buffer* b = find_buffer(l, address);
  if (!b || b->size - (address - b->base) < bytes) {
    found(at, "global-out-of-bounds", address,
          std::string(verb(mode)) + " of " + std::to_string(bytes) + " bytes, " +
              nearest(l, address + (b ? bytes - 1 : 0)));
    return nullptr;
  }
  if (mode != Mode::read && b->readonly) {
    found(at, "global-write-to-readonly", address,
          std::string(verb(mode)) + " to read-only buffer '" + b->name + "'");
    return nullptr;
  }
  check_alignment(at, address, bytes, mode, "global-misaligned");
  at.w.last_buffer = b;
  if (!b->shadowed) return reinterpret_cast<u8*>(address);
  if (!b->undefined.empty()) {
    if (mode != Mode::read && at.w.stored_undefined)
      found(at, "undefined-store", address,
            std::string(verb(mode)) + " to buffer '" + b->name + "' of data that nothing has computed" +
                origin(at.w));
    // The bytes belong to the launch. The buffer itself is shared and constant.
    track_definedness(at, const_cast<u8*>(b->undefined.data()) + (address - b->base), bytes, mode);
    if (mode == Mode::atomic && at.w.undefined_bytes)
      found(at, "global-uninitialised", address,
            "atomic on memory of buffer '" + b->name + "' that nothing has written");
    if (mode == Mode::read && at.w.undefined_bytes)
      found(at, "global-uninitialised", address,
            "load from memory of buffer '" + b->name + "' that nothing has written");
  }
  if (l.check(Check::race)) track_global(at, address, bytes, mode);
  return reinterpret_cast<u8*>(address);
}

u8* lds_slow(const Where& at, u32 address, u32 bytes, Mode mode) {
  Group& g = *at.w.group;
  if (static_cast<u64>(address) + bytes > at.w.lds_size) {
    found(at, "lds-out-of-bounds", address,
          std::string(verb(mode)) + " of " + std::to_string(bytes) + " bytes, the workgroup has " +
              std::to_string(at.w.lds_size) + " bytes");
    return nullptr;
  }
  check_alignment(at, address, bytes, mode, "lds-misaligned");
  if (!g.lds_undefined.empty()) track_definedness(at, g.lds_undefined.data() + address, bytes, mode);
  if (!g.lds_history.empty() && !at.w.lds_noted) track_lds(at, address, bytes, mode);
  return at.w.lds + address;
}

u8* scratch_slow(const Where& at, u64 address, u32 bytes, Mode mode) {
  if (address > at.w.scratch_size || bytes > at.w.scratch_size - address) {
    found(at, "scratch-out-of-bounds", address,
          std::string(verb(mode)) + " of " + std::to_string(bytes) + " bytes, a lane has " +
              std::to_string(at.w.scratch_size) + " bytes");
    return nullptr;
  }
  check_alignment(at, address, bytes, mode, "scratch-misaligned");
  size_t offset = static_cast<size_t>(at.lane) * at.w.scratch_size + address;
  if (!at.w.scratch_undefined.empty())
    track_definedness(at, at.w.scratch_undefined.data() + offset, bytes, mode);
  return at.w.scratch.data() + offset;
}
}  // namespace emu
