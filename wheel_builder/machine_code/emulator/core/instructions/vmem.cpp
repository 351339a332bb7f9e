// Global, flat, scratch and buffer instructions. A family defines the place of a lane's bytes. Loads, stores
// and atomics are the same for all of them (transfer.hpp).
#include <string>

#include "code/ops.hpp"
#include "instructions/transfer.hpp"

namespace emu {
namespace {
// Operand positions: loads have [vaddr, saddr], stores and atomics [vaddr, data, saddr]. Buffers: [vaddr,
// resource, soffset], stores with the data before it.
struct Positions {
  u32 address, data, scalar;
};

// The buffer with a load's bytes, if its bounds are the only check needed.
const Buffer* plain_buffer(Wave& w, u64 address, u32 bytes) {
  const auto holds = [&](const Buffer* b) {
    return b && address - b->base < b->size && b->size - (address - b->base) >= bytes;
  };
  if (!holds(w.last_buffer)) {
    const Buffer* b = find_buffer(*w.launch, address);
    if (!holds(b)) return nullptr;
    w.last_buffer = b;
  }
  return w.last_buffer->shadowed ? nullptr : w.last_buffer;
}

struct GlobalPlace {
  Wave& w;
  const Inst& in;
  alignas(64) u64 address[kLanes];
  static constexpr Positions positions(bool has_data) { return {0, 1, has_data ? 2u : 1u}; }
  GlobalPlace(Wave& wave, const Inst& inst, const Positions& p) : w(wave), in(inst) {
    const Operand& s = in.src[p.scalar];
    i64 offset = in.offset;
    if (p.scalar < in.nsrc && s.kind != Kind::none && s.index != kNull) {
      alignas(64) u32 t[kLanes];
      u64 base = read_s64(w, s) + static_cast<u64>(offset);
      const u32* v = read_raw(w, in.src[p.address], t);
      lanes(w, [&](u32 i) { address[i] = base + v[i]; });
    } else {
      alignas(64) u64 t[kLanes];
      const u64* v = U64::load(w, in.src[p.address], t);
      lanes(w, [&](u32 i) { address[i] = v[i] + static_cast<u64>(offset); });
    }
  }
  u8* operator()(u32 lane, u32 more, u32 bytes, Mode mode) const {
    return global({w, in, lane}, address[lane] + more, bytes, mode);
  }
  // Whether all active lanes' loads are free of individual checks, and then their places.
  bool whole(u32 bytes, Whole& at) const {
    if (!w.exec) return false;
    const Buffer* b = plain_buffer(w, address[__builtin_ctzll(w.exec)], bytes);
    if (!b) return false;
    const u64 most = std::min<u64>(b->size - bytes, ~0u);
    u32 bad = 0;
    lanes(w, [&](u32 i) {
      const u64 from = address[i] - b->base;
      at.offset[i] = static_cast<u32>(from);
      at.on[i] = w.em[i];
      bad |= (static_cast<u32>(from > most) | (static_cast<u32>(address[i]) & 3)) & w.em[i];
    });
    at.base = reinterpret_cast<const u8*>(b->base);
    return !bad;
  }
};

struct FlatPlace : GlobalPlace {
  static constexpr Positions positions(bool) { return {0, 1, 5}; }
  using GlobalPlace::GlobalPlace;
  u8* operator()(u32 lane, u32 more, u32 bytes, Mode mode) const {
    u64 a = address[lane] + more;
    if (a >> 32 == kSharedBase >> 32) return lds({w, in, lane}, static_cast<u32>(a), bytes, mode);
    if (a >> 32 == kPrivateBase >> 32) return scratch({w, in, lane}, static_cast<u32>(a), bytes, mode);
    return global({w, in, lane}, a, bytes, mode);
  }
};

struct ScratchPlace {
  Wave& w;
  const Inst& in;
  alignas(64) u32 address[kLanes];
  static constexpr Positions positions(bool has_data) { return {0, 1, has_data ? 2u : 1u}; }
  ScratchPlace(Wave& wave, const Inst& inst, const Positions& p) : w(wave), in(inst) {
    u32 base = static_cast<u32>(in.offset);
    if (in.src[p.scalar].kind != Kind::none) base += read_s32(w, in.src[p.scalar]);
    alignas(64) u32 t[kLanes];
    bool has = in.src[p.address].kind != Kind::none;
    const u32* v = has ? read_raw(w, in.src[p.address], t) : nullptr;
    lanes(w, [&](u32 i) { address[i] = base + (has ? v[i] : 0); });
  }
  u8* operator()(u32 lane, u32 more, u32 bytes, Mode mode) const {
    return scratch({w, in, lane}, static_cast<u64>(address[lane]) + more, bytes, mode);
  }
};

struct BufferPlace {
  Wave& w;
  const Inst& in;
  alignas(64) u32 offset[kLanes];
  u64 base, limit;
  u32 soffset, stride;
  bool is_scratch;
  static constexpr Positions positions(bool has_data) { return {has_data ? 1u : 0u, 0, has_data ? 2u : 1u}; }
  BufferPlace(Wave& wave, const Inst& inst, const Positions& p) : w(wave), in(inst) {
    const u32* r = w.s + in.src[p.scalar].index;
    base = r[0] | static_cast<u64>(r[1] & 0xffff) << 32;
    stride = r[1] >> 16 & 0x3fff;
    limit = stride ? static_cast<u64>(r[2]) * stride : r[2];
    soffset = read_s32(w, in.src[p.scalar + 1]);
    is_scratch = base >> 32 == kScratchResource >> 32;
    const Operand& va = in.src[p.address];
    alignas(64) u32 t[kLanes], t2[kLanes];
    const u32* index = in.aux & kIdxen ? read_raw(w, va, t) : nullptr;
    const u32* off = in.aux & kOffen ? read_raw(w, va, t2, index ? 1 : 0) : nullptr;
    if (!is_scratch && (r[1] >> 31 || r[3] >> 23 & 1))
      fail(w, in, "swizzled buffer resources are not implemented");
    if (!is_scratch && index && !stride) index = nullptr;
    const u32 more = static_cast<u32>(in.offset);
    lanes(w, [&](u32 i) { offset[i] = more; });
    if (off) lanes(w, [&](u32 i) { offset[i] += off[i]; });
    if (index) lanes(w, [&](u32 i) { offset[i] += index[i] * stride; });
    if (is_scratch) soffset = (soffset + static_cast<u32>(base - kScratchResource)) / w.n;
  }
  // Whether the resource's check lets the access through.  RDNA 4's manual counts the scalar offset in it,
  // CDNA's and LLVM's do not: where that decides, the kernel is wrong.
  bool inside(u32 lane, u64 a, u32 bytes) const {
    if (a + soffset + bytes <= limit) return true;
    if (a + bytes <= limit)
      found({w, in, lane}, "scalar-offset", base + soffset + a,
            "only the scalar offset of " + std::to_string(soffset) + " is beyond the end of the resource (" +
                std::to_string(limit) + " bytes), and not every GPU checks it");
    return false;
  }
  // Whether all active lanes' loads are free of individual checks, and then their places. Lanes beyond the
  // resource's end read zero.
  bool whole(u32 bytes, Whole& at) const {
    const u64 from = base + soffset;
    if (is_scratch || limit < u64{soffset} + bytes) return false;
    const u64 last = limit - soffset - bytes, last_in_part = limit - 4;  // with or without soffset
    u32 in_part = 0;
    lanes(w, [&](u32 i) {
      at.offset[i] = offset[i];
      at.on[i] = offset[i] <= last ? w.em[i] : 0;
      in_part |= offset[i] > last && offset[i] <= last_in_part ? w.em[i] : 0;
    });
    const Spread s = spread(w, at.offset, at.on);
    if (in_part || s.least > s.most || (s.bits | from) & 3) return false;
    const Buffer* b = plain_buffer(w, from + s.least, bytes);
    at.base = reinterpret_cast<const u8*>(from);
    return b && from + s.most + bytes <= b->base + b->size;
  }
  u8* operator()(u32 lane, u32 more, u32 bytes, Mode mode) const {
    u64 a = static_cast<u64>(offset[lane]) + more;
    if (is_scratch) return scratch({w, in, lane}, a + soffset, bytes, mode);
    // The resource checks its own range per dword: a partly covered access takes the slow path in load/store.
    if (!inside(lane, a, bytes)) return nullptr;
    return global({w, in, lane}, base + soffset + a, bytes, mode);
  }
};

// Buffer accesses partly outside of the resource, served dword by dword.
template <class P, Load kKind, u32 kDwords>
void load(Wave& w, const Inst& in) {
  P place(w, in, P::positions(false));
  if constexpr ((std::is_same<P, BufferPlace>::value || std::is_same<P, GlobalPlace>::value) &&
                kKind == Load::dwords) {
    Whole at;
    if (place.whole(4 * kDwords, at)) return load_whole<kDwords>(w, in, at);
  }
  if constexpr (std::is_same<P, BufferPlace>::value && kDwords > 1) {
    Inst one = in;
    for (u32 d = 0; d < kDwords; ++d) {
      one.dst[0].index = static_cast<u16>(in.dst[0].index + d);
      load_lanes(w, one, kKind, 1, [&](u32 l, u32, u32 n, Mode m) { return place(l, 4 * d, n, m); });
    }
  } else {
    load_lanes(w, in, kKind, kDwords, place);
  }
}
template <class P, u32 kBytes, bool kHi>
void store(Wave& w, const Inst& in) {
  Positions p = P::positions(true);
  P place(w, in, p);
  const Operand& data = in.src[p.data];
  bool high = kHi || (data.flags & kHigh);
  if constexpr (std::is_same<P, BufferPlace>::value && (kBytes > 4)) {
    Operand one = data;
    for (u32 d = 0; d < kBytes / 4; ++d) {
      one.index = static_cast<u16>(data.index + d);
      store_lanes(w, one, 4, false, [&](u32 l, u32, u32 n, Mode m) { return place(l, 4 * d, n, m); });
    }
  } else {
    store_lanes(w, data, kBytes, high, place);
  }
}
// The lanes' dwords straight into LDS, one lane's after the other's, from M0 on.  M0 has as many bits as the
// LDS. A buffer checks its range dword by dword, and the dwords outside are zeros.
template <class P, u32 kDwords>
void load_to_lds(Wave& w, const Inst& in) {
  constexpr u32 kBytes = 4 * kDwords, kPart = std::is_same<P, BufferPlace>::value ? 4 : kBytes;
  P place(w, in, P::positions(false));
  const u32 base = w.s[kM0] & (fa::traits(w.program->gfx).lds_bytes > 0x10000 ? 0x3ffffu : 0xffffu);
  for (u64 m = w.exec; m; m &= m - 1) {
    u32 i = static_cast<u32>(__builtin_ctzll(m));
    u8 x[kBytes] = {0};
    u64 undefined = 0;
    for (u32 at = 0; at < kBytes; at += kPart) {
      if (const u8* p = place(i, at, kPart, Mode::read)) std::memcpy(x + at, p, kPart);
      undefined |= std::exchange(w.undefined_bytes, 0) << at;
    }
    w.stored_undefined = undefined;
    u32 to = base + static_cast<u32>(in.offset) + kBytes * i;
    if (u8* q = lds({w, in, i}, to, kBytes, Mode::write)) std::memcpy(q, x, kBytes);
    w.stored_undefined = 0;
  }
}
template <class P, u32 kDwords>
void load_anywhere(Wave& w, const Inst& in) {
  if (in.aux & kLds)
    load_to_lds<P, kDwords>(w, in);
  else
    load<P, Load::dwords, kDwords>(w, in);
}
template <class P, class T, class F>
void atomic(Wave& w, const Inst& in, bool compare, F f) {
  bool returns = in.aux & kGlc;
  Positions p = P::positions(true);
  const Operand* data = &in.src[p.data];
  if (std::is_same<P, BufferPlace>::value && returns) {
    p = P::positions(false);  // the data register is the destination
    data = &in.dst[0];
  }
  P place(w, in, p);
  Operand copy = *data;
  atomic_lanes<T>(w, in, copy, compare ? &copy : nullptr, returns, place, f);
}

template <class P>
void atomic_flow(Wave& s, const Inst& in) {
  constexpr bool kIsBuffer = std::is_same<P, BufferPlace>::value;
  if (kIsBuffer && in.ndst)
    flow::address<>(s, in);
  else
    flow::address<P::positions(true).data>(s, in);
}

const char* keep(const std::string& s) {
  static std::deque<std::string> names;
  names.push_back(s);
  return names.back().c_str();
}

template <class P>
void add_family(Ops& t, const std::string& family, Class cls) {
  auto add = [&](const char* old_name, const char* new_name, Handler h, u8 dsts,
                 Handler flow = flow::address<>, u32 flags = 0) {
    for (const char* n : {old_name, new_name})
      if (n && !t.find(family + "_" + n))
        t.add({keep(family + "_" + n), h, cls, dsts, {Type::b32}, flags, nullptr}).follows(flow);
  };
  constexpr Handler stored = flow::address<P::positions(true).data>, updated = atomic_flow<P>;
  constexpr Load D = Load::dwords;
  constexpr bool kBuffer = std::is_same<P, BufferPlace>::value, kGlobal = std::is_same<P, GlobalPlace>::value;
  add("load_dword", "load_b32", load_anywhere<P, 1>, 1, flow::address<>,
      kBuffer || kGlobal ? u32{kToLds} : 0u);
  add("load_dwordx2", "load_b64", load<P, D, 2>, 1);
  add("load_dwordx3", "load_b96", load<P, D, 3>, 1);
  add("load_dwordx4", "load_b128", load_anywhere<P, 4>, 1, flow::address<>, kBuffer ? u32{kToLds} : 0u);
  add("load_ubyte", "load_u8", load<P, Load::u8_, 1>, 1);
  add("load_sbyte", "load_i8", load<P, Load::i8_, 1>, 1);
  add("load_ushort", "load_u16", load<P, Load::u16_, 1>, 1);
  add("load_sshort", "load_i16", load<P, Load::i16_, 1>, 1);
  add("load_ubyte_d16", "load_d16_u8", load<P, Load::d16_u8, 1>, 1);
  add("load_sbyte_d16", "load_d16_i8", load<P, Load::d16_i8, 1>, 1);
  add("load_short_d16", "load_d16_b16", load<P, Load::d16, 1>, 1);
  add("load_ubyte_d16_hi", "load_d16_hi_u8", load<P, Load::d16_hi_u8, 1>, 1);
  add("load_sbyte_d16_hi", "load_d16_hi_i8", load<P, Load::d16_hi_i8, 1>, 1);
  add("load_short_d16_hi", "load_d16_hi_b16", load<P, Load::d16_hi, 1>, 1);
  add("store_byte", "store_b8", store<P, 1, false>, 0, stored);
  add("store_short", "store_b16", store<P, 2, false>, 0, stored);
  add("store_dword", "store_b32", store<P, 4, false>, 0, stored);
  add("store_dwordx2", "store_b64", store<P, 8, false>, 0, stored);
  add("store_dwordx3", "store_b96", store<P, 12, false>, 0, stored);
  add("store_dwordx4", "store_b128", store<P, 16, false>, 0, stored);
  add("store_byte_d16_hi", "store_d16_hi_b8", store<P, 1, true>, 0, stored);
  add("store_short_d16_hi", "store_d16_hi_b16", store<P, 2, true>, 0, stored);
  if (cls == Class::scratch) return;
#define ROW(name, T, expr)                                  \
  add(                                                      \
      "atomic_" #name, nullptr,                             \
      [](Wave& w, const Inst& in) {                         \
        atomic<P, T>(w, in, false, [](T x, T a, T b) -> T { \
          (void)x;                                          \
          (void)b;                                          \
          return expr;                                      \
        });                                                 \
      },                                                    \
      0, updated);
  EMU_ATOMICS(ROW)
#undef ROW
  add(
      "atomic_cmpswap", "atomic_cmpswap_b32",
      [](Wave& w, const Inst& in) {
        atomic<P, u32>(w, in, true, [](u32 x, u32 a, u32 b) { return x == b ? a : x; });
      },
      0, updated);
  add(
      "atomic_cmpswap_x2", "atomic_cmpswap_b64",
      [](Wave& w, const Inst& in) {
        atomic<P, u64>(w, in, true, [](u64 x, u64 a, u64 b) { return x == b ? a : x; });
      },
      0, updated);
  const char* renamed[][2] = {
      {"add_u32", "add"},     {"sub_u32", "sub"},     {"min_i32", "smin"},     {"min_u32", "umin"},
      {"max_i32", "smax"},    {"max_u32", "umax"},    {"and_b32", "and"},      {"or_b32", "or"},
      {"xor_b32", "xor"},     {"inc_u32", "inc"},     {"dec_u32", "dec"},      {"swap_b32", "swap"},
      {"min_f32", "fmin"},    {"max_f32", "fmax"},    {"min_num_f32", "fmin"}, {"max_num_f32", "fmax"},
      {"add_u64", "add_x2"},  {"sub_u64", "sub_x2"},  {"min_i64", "smin_x2"},  {"min_u64", "umin_x2"},
      {"max_i64", "smax_x2"}, {"max_u64", "umax_x2"}, {"and_b64", "and_x2"},   {"or_b64", "or_x2"},
      {"xor_b64", "xor_x2"},  {"swap_b64", "swap_x2"}};
  for (auto& r : renamed) t.alias(keep(family + "_atomic_" + r[0]), keep(family + "_atomic_" + r[1]));
}
}  // namespace

void add_vmem(Ops& t) {
  add_family<GlobalPlace>(t, "global", Class::vmem);
  add_family<FlatPlace>(t, "flat", Class::vmem);
  add_family<ScratchPlace>(t, "scratch", Class::scratch);
  add_family<BufferPlace>(t, "buffer", Class::vmem);
  t.add({"global_load_lds_dword", load_to_lds<GlobalPlace, 1>, Class::vmem, 0, {Type::b32}, 0, nullptr});
  t.add({"global_load_lds_dwordx4", load_to_lds<GlobalPlace, 4>, Class::vmem, 0, {Type::b32}, 0, nullptr});
}
}  // namespace emu
