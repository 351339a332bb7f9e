// Loads, stores and atomics of a lane, shared by LDS, global, buffer and scratch instructions. A place is a
// function (lane, byte offset from the lane's address, bytes, mode) -> pointer or null.
#pragma once
#include <immintrin.h>

#include <algorithm>

#include "run/memory.hpp"

namespace emu {
// How a loaded element becomes register contents.
enum class Load : u8 { u8_, i8_, u16_, i16_, dwords, d16_u8, d16_i8, d16, d16_hi_u8, d16_hi_i8, d16_hi };

inline u32 load_bytes(Load kind, u32 dwords) {
  switch (kind) {
    case Load::dwords: return 4 * dwords;
    case Load::u8_:
    case Load::i8_:
    case Load::d16_u8:
    case Load::d16_i8:
    case Load::d16_hi_u8:
    case Load::d16_hi_i8: return 1;
    default: return 2;
  }
}
// Sign extension of loaded data. For undefined bits, extension of the sign's bit.
inline u32 extend(Load kind, u32 x) {
  switch (kind) {
    case Load::i8_: return static_cast<u32>(static_cast<i32>(static_cast<i8>(x)));
    case Load::i16_: return static_cast<u32>(static_cast<i32>(static_cast<i16>(x)));
    case Load::d16_i8:
    case Load::d16_hi_i8: return static_cast<u32>(static_cast<i32>(static_cast<i8>(x))) & 0xffffu;
    default: return x;
  }
}
// Writes all lanes' loaded words to the destination, of a wave or of its shadow.
inline void deliver(Wave& w, const Inst& in, Load kind, u32 dwords, const u32 (*out)[kLanes]) {
  if (kind < Load::d16_u8) {
    for (u32 d = 0; d < dwords; ++d) commit(w, in.dst[0], out[d], d);
    return;
  }
  // d16: the other half stays. Parts with SRAM ECC zero it, and the compiler never relies on it there.
  bool high = kind >= Load::d16_hi_u8 || (in.dst[0].flags & kHigh), keep = !w.program->gfx9();
  u32* d = w.v[in.dst[0].index];
  lanes(w, [&](u32 i) {
    u32 other = keep ? d[i] & (high ? 0xffffu : 0xffff0000u) : 0;
    u32 r = (high ? out[0][i] << 16 : out[0][i] & 0xffffu) | other;
    d[i] = (r & w.em[i]) | (d[i] & ~w.em[i]);
  });
}

template <class Place>
inline void load_lanes(Wave& w, const Inst& in, Load kind, u32 dwords, Place place) {
  alignas(64) u32 out[4][kLanes], undefined[4][kLanes];
  u32 bytes = load_bytes(kind, dwords);
  u64 any = 0;
  for (u64 m = w.exec; m; m &= m - 1) {
    u32 i = static_cast<u32>(__builtin_ctzll(m));
    u32 x[4] = {0, 0, 0, 0};
    if (const u8* p = place(i, 0, bytes, Mode::read)) std::memcpy(x, p, bytes);
    u64 bad = std::exchange(w.undefined_bytes, 0);
    any |= bad;
    for (u32 d = 0; d < dwords; ++d) {
      out[d][i] = extend(kind, x[d]);
      if (w.shadow) undefined[d][i] = extend(kind, bytes_to_bits(bad >> (4 * d)));
    }
  }
  deliver(w, in, kind, dwords, out);
  if (w.shadow) shadow_load(w, in, dwords, any, [&](Wave& s) { deliver(s, in, kind, dwords, undefined); });
}

// Of the lanes' addresses: the largest, the smallest, and the OR of all. Only lanes set in `on` count.
struct Spread {
  u32 least = ~0u, most = 0, bits = 0;
};
inline Spread spread(const Wave& w, const u32* address, const u32* on) {
  Spread s;
  for (u32 i = 0; i < w.n; ++i) {
    s.least = std::min(s.least, address[i] | ~on[i]);
    s.most = std::max(s.most, address[i] & on[i]);
    s.bits |= address[i] & on[i];
  }
  return s;
}
// Loads the dwords at base + offset of every lane, four lanes at a time. The offsets must be outside of the
// destination.
template <u32 kDwords>
inline void gather(u32 n, u32 (*d)[kLanes], const u8* base, const u32* offset) {
  for (u32 i = 0; i < n; i += 4) {
    const u8* p[4];
    for (u32 k = 0; k < 4; ++k) p[k] = base + offset[i + k];
    if constexpr (kDwords == 4) {
      __m128 x[4];
      for (u32 k = 0; k < 4; ++k) x[k] = _mm_loadu_ps(reinterpret_cast<const f32*>(p[k]));
      _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
      for (u32 k = 0; k < 4; ++k) _mm_storeu_ps(reinterpret_cast<f32*>(d[k] + i), x[k]);
    } else {
      u32 x[4][kDwords];
      for (u32 k = 0; k < 4; ++k) std::memcpy(x[k], p[k], sizeof x[k]);
      for (u32 k = 0; k < 4; ++k)
        for (u32 m = 0; m < kDwords; ++m) d[m][i + k] = x[k][m];
    }
  }
}
// The lanes' accesses of one instruction, free of individual checks: their places, and the reading lanes (all
// ones or zero). Other active lanes get zeros, as beyond a buffer's end.
struct Whole {
  const u8* base = nullptr;
  alignas(64) u32 offset[kLanes], on[kLanes];
};
// Loads into the destination, whose bits become defined.
template <u32 kDwords>
inline void load_whole(Wave& w, const Inst& in, Whole& at) {
  const Operand& dst = in.dst[0];
  const u64 reads = pack_mask(w, at.on);
  if (w.exec == w.all && reads == w.all) {
    gather<kDwords>(w.n, w.v + dst.index, at.base, at.offset);
  } else {
    alignas(64) u32 out[kDwords][kLanes];
    const u32 some = at.offset[__builtin_ctzll(reads)];
    lanes(w, [&](u32 i) { at.offset[i] = (at.offset[i] & at.on[i]) | (some & ~at.on[i]); });
    gather<kDwords>(w.n, out, at.base, at.offset);
    for (u32 d = 0; d < kDwords; ++d) {
      lanes(w, [&](u32 i) { out[d][i] &= at.on[i]; });
      commit(w, dst, out[d], d);
    }
  }
  if (w.shadow) shadow_load(w, in, kDwords, 0, [&](Wave& s) { clear_shadow(s, dst, kDwords); });
}

// bytes per lane: 1, 2 (optionally from the high half) or dwords
template <class Place>
inline void store_lanes(Wave& w, const Operand& data, u32 bytes, bool high, Place place) {
  alignas(64) u32 tmp[4][kLanes];
  const u32* d[4];
  for (u32 k = 0; k < (bytes + 3) / 4; ++k) d[k] = read_raw(w, data, tmp[k], k);
  for (u64 m = w.exec; m; m &= m - 1) {
    u32 i = static_cast<u32>(__builtin_ctzll(m));
    if (w.shadow) w.stored_undefined = undefined_data(w, data, bytes, high, i);
    u8* p = place(i, 0, bytes, Mode::write);
    w.stored_undefined = 0;
    if (!p) continue;
    if (bytes < 4) {
      u32 x = high ? d[0][i] >> 16 : d[0][i];
      std::memcpy(p, &x, bytes);
    } else {
      for (u32 k = 0; k < bytes / 4; ++k) std::memcpy(p + 4 * k, &d[k][i], 4);
    }
  }
}

// old = f(old, data, compare), atomically. The old value goes to the destination, if present.
template <class T, class Place, class F>
inline void atomic_lanes(Wave& w, const Inst& in, const Operand& data, const Operand* second, bool returns,
                         Place place, F f) {
  constexpr u32 dwords = sizeof(T) / 4;
  alignas(64) u32 out[2][kLanes], t0[2][kLanes], t1[2][kLanes];
  auto fetch = [&](const Operand& o, u32 first, u32(*tmp)[kLanes], u32 i) {
    u32 x[2];
    for (u32 d = 0; d < dwords; ++d) x[d] = read_raw(w, o, tmp[d], first + d)[i];
    T t;
    std::memcpy(&t, x, sizeof t);
    return t;
  };
  for (u64 m = w.exec; m; m &= m - 1) {
    u32 i = static_cast<u32>(__builtin_ctzll(m));
    T old = 0;
    if (w.shadow) w.stored_undefined = undefined_data(w, data, sizeof(T), false, i);
    u8* p = place(i, 0, sizeof(T), Mode::atomic);
    w.stored_undefined = w.undefined_bytes = 0;
    if (p) {
      T a = fetch(data, 0, t0, i), b = second ? fetch(*second, second == &data ? dwords : 0, t1, i) : T(0);
      T* q = reinterpret_cast<T*>(p);
      old = __atomic_load_n(q, __ATOMIC_SEQ_CST);
      while (!__atomic_compare_exchange_n(q, &old, f(old, a, b), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
      }
    }
    for (u32 d = 0; d < dwords; ++d) out[d][i] = static_cast<u32>(static_cast<u64>(old) >> (32 * d));
  }
  if (!returns) return;
  for (u32 d = 0; d < dwords; ++d) commit(w, in.dst[0], out[d], d);
  if (w.shadow) shadow_load(w, in, dwords, 0, [&](Wave& s) { clear_shadow(s, in.dst[0], dwords); });
}

// The read-modify-write operations: name, element type, expression in x (memory), a (data), b (second data).
#define EMU_ATOMICS(ROW)                                                          \
  ROW(add, u32, x + a)                                                            \
  ROW(sub, u32, x - a)                                                            \
  ROW(smin, u32, static_cast<i32>(x) < static_cast<i32>(a) ? x : a)               \
  ROW(umin, u32, x < a ? x : a)                                                   \
  ROW(smax, u32, static_cast<i32>(x) > static_cast<i32>(a) ? x : a)               \
  ROW(umax, u32, x > a ? x : a)                                                   \
  ROW(and, u32, x& a)                                                             \
  ROW(or, u32, x | a)                                                             \
  ROW(xor, u32, x ^ a)                                                            \
  ROW(inc, u32, x >= a ? 0 : x + 1)                                               \
  ROW(dec, u32, x == 0 || x > a ? a : x - 1)                                      \
  ROW(swap, u32, a)                                                               \
  ROW(add_f32, u32, bits<u32>(bits<f32>(x) + bits<f32>(a)))                       \
  ROW(fmin, u32, bits<u32>(pick_f32(bits<f32>(x), bits<f32>(a), false, true)))    \
  ROW(fmax, u32, bits<u32>(pick_f32(bits<f32>(x), bits<f32>(a), true, true)))     \
  ROW(pk_add_f16, u32, pk_add_f16(x, a))                                          \
  ROW(pk_add_bf16, u32, pk_add_bf16(x, a))                                        \
  ROW(add_x2, u64, x + a)                                                         \
  ROW(sub_x2, u64, x - a)                                                         \
  ROW(smin_x2, u64, static_cast<i64>(x) < static_cast<i64>(a) ? x : a)            \
  ROW(umin_x2, u64, x < a ? x : a)                                                \
  ROW(smax_x2, u64, static_cast<i64>(x) > static_cast<i64>(a) ? x : a)            \
  ROW(umax_x2, u64, x > a ? x : a)                                                \
  ROW(and_x2, u64, x& a)                                                          \
  ROW(or_x2, u64, x | a)                                                          \
  ROW(xor_x2, u64, x ^ a)                                                         \
  ROW(swap_x2, u64, a)                                                            \
  ROW(add_f64, u64, bits<u64>(bits<f64>(x) + bits<f64>(a)))                       \
  ROW(min_f64, u64, bits<u64>(pick_f64(bits<f64>(x), bits<f64>(a), false, true))) \
  ROW(max_f64, u64, bits<u64>(pick_f64(bits<f64>(x), bits<f64>(a), true, true)))

inline u32 pk_add_f16(u32 x, u32 a) {
  u32 lo = float_to_half(half_to_float(x & 0xffff) + half_to_float(a & 0xffff));
  return lo | float_to_half(half_to_float(x >> 16) + half_to_float(a >> 16)) << 16;
}
inline u32 pk_add_bf16(u32 x, u32 a) {
  u32 lo = float_to_bf16(bf16_to_float(x & 0xffff) + bf16_to_float(a & 0xffff));
  return lo | float_to_bf16(bf16_to_float(x >> 16) + bf16_to_float(a >> 16)) << 16;
}
}  // namespace emu
