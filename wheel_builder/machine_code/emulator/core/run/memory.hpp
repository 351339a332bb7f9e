// Checked access to global memory, LDS and scratch. A bad access is recorded and then behaves as under the
// hardware's bounds checks: loads give zero, stores are dropped.
#pragma once
#include <utility>

#include "run/launch.hpp"

namespace emu {
struct Where {
  Wave& w;
  const Inst& in;
  u32 lane;
};

// Elements up to a dword are aligned to their own size, everything else to a dword.
inline u32 alignment_mask(u32 bytes) { return bytes < 4 ? bytes - 1 : 3; }

// The registered memory containing the address, or null.
const Buffer* find_buffer(const Launch& l, u64 address);
u8* global_slow(const Where& at, u64 address, u32 bytes, Mode mode);
u8* lds_slow(const Where& at, u32 address, u32 bytes, Mode mode);
u8* scratch_slow(const Where& at, u64 address, u32 bytes, Mode mode);

inline u8* global(const Where& at, u64 address, u32 bytes, Mode mode) {
  const Buffer* b = at.w.last_buffer;
  u32 align = alignment_mask(bytes);
  if (b && address - b->base < b->size && b->size - (address - b->base) >= bytes && !(address & align) &&
      !b->shadowed && (mode == Mode::read || !b->readonly))
    return reinterpret_cast<u8*>(address);
  return global_slow(at, address, bytes, mode);
}
inline u8* lds(const Where& at, u32 address, u32 bytes, Mode mode) {
  u32 align = alignment_mask(bytes);
  if (static_cast<u64>(address) + bytes <= at.w.lds_size && !(address & align) &&
      !at.w.launch->options.checks)
    return at.w.lds + address;
  return lds_slow(at, address, bytes, mode);
}
// address: offset in the lane's private memory
inline u8* scratch(const Where& at, u64 address, u32 bytes, Mode mode) {
  u32 align = alignment_mask(bytes);
  if (address <= at.w.scratch_size && bytes <= at.w.scratch_size - address && !(address & align) &&
      !at.w.launch->options.checks)
    return at.w.scratch.data() + static_cast<size_t>(at.lane) * at.w.scratch_size + address;
  return scratch_slow(at, address, bytes, mode);
}

// A mask of four bytes as a mask of bits.
inline u32 bytes_to_bits(u64 mask) {
  u32 out = 0;
  for (u32 i = 0; i < 4; ++i) out |= mask >> i & 1 ? 0xffu << (8 * i) : 0;
  return out;
}
// Undefined bytes of a lane's data before a store.
u64 undefined_data(const Wave& w, const Operand& data, u32 bytes, bool high, u32 lane);
// After a load: `deliver` writes the destination's undefined bits, except where all bits are defined before
// and after.
void clear_shadow(Wave& shadow, const Operand& dst, u32 dwords);
void update_dirty(Wave& shadow, const Operand& dst, u32 dwords);
bool is_dirty(const Wave& shadow, const Operand& o, u32 dwords);
void follow_exec(Wave& shadow);
template <class F>
inline void shadow_load(Wave& w, const Inst& in, u32 dwords, u64 any, F deliver) {
  Wave& s = *w.shadow;
  if (!any && !is_dirty(s, in.dst[0], dwords)) return;
  follow_exec(s);
  deliver(s);
  update_dirty(s, in.dst[0], dwords);
}

void track_lds(const Where& at, u32 address, u32 bytes, Mode mode);
// For all active lanes at once, in bounds and aligned: whether a race is excluded, which makes tracking of
// single lanes unnecessary.
bool note_lds(Wave& w, const u32* address, u32 bytes, Mode mode);
void track_global(const Where& at, u64 address, u32 bytes, Mode mode);
std::string origin(const Wave& w);
void found(const Where& at, const char* kind, u64 address, const std::string& detail);
}  // namespace emu
