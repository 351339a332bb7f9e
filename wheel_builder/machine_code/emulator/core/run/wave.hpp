// State of one wave and typed access to its operands. Handlers read whole lane arrays and commit them under
// EXEC.
#pragma once
#include <cstddef>

#include "checks/clock.hpp"
#include "checks/sanitize.hpp"
#include "code/inst.hpp"
#include "instructions/math.hpp"

namespace emu {
struct Launch;
struct Group;

enum class State : u8 { running, barrier, global_barrier, done };

// A wave's execution. `executed`: instruction index | active lanes << 24. `lds`: for each LDS instruction its
// index, EXEC (low, high), both offset fields, and the address register of every lane of the wave.
struct Record {
  std::vector<u32> executed, lds;
};

struct alignas(64) Wave {
  alignas(64) u32 v[kVgprs][kLanes];
  alignas(64) u32 em[kLanes];  // EXEC (or the part left by DPP), each lane's word all ones or zero
  u32 s[kSgprs];
  u64 exec = 0;  // em as bits
  u64 all = 0;   // existing lanes
  u32 n = 64;    // lanes
  bool scc = false, ieee = true, dx10_clamp = true, keep_high = false;
  bool flushes = false;    // MODE: fp32 denormals are zeros, in sources and results
  bool saturates = false;  // MODE.FP16_OVFL: a result beyond fp16, FP8 or BF8 is the largest number
  State state = State::running;
  u32 pc = 0, next = 0, index = 0, mode = 0, barrier_pc = 0;
  u64 launched = 0;  // lanes with a work item
  u64 executed = 0;
  Group* group = nullptr;
  Launch* launch = nullptr;
  const Program* program = nullptr;
  u8* lds = nullptr;
  u32 lds_size = 0;
  std::vector<u8> scratch, scratch_undefined;  // [lane][scratch_size]
  u32 scratch_size = 0;
  const Buffer* last_buffer = nullptr;
  u64 undefined_bytes = 0;   // of the last access: unwritten bytes. The reader clears it.
  u64 stored_undefined = 0;  // of the next store: bytes whose data is undefined
  Clock clock;               // orders its accesses and those of other waves
  // Between signal and wait at a barrier: the clock for the others, and whether it has used LDS since.
  bool signalled = false, lds_since_signal = false;
  bool lds_noted = false;  // the instruction: race.cpp has seen its accesses to LDS
  Clock at_signal;
  u32 origin = 0;  // plus one: the last load of unwritten LDS or scratch
  Record* record = nullptr;
  // Undefined bits of all registers, as another wave with the same EXEC. And the way back.
  std::unique_ptr<Wave> shadow;
  Wave* real = nullptr;
  bool dirty[kVgprs];  // of a shadow: the register may have undefined bits

  void set_exec(u64 e) {
    exec = e & all;
    s[kExec] = static_cast<u32>(exec);
    s[kExec + 1] = static_cast<u32>(exec >> 32);
    expand();
  }
  void expand() {
    for (u32 i = 0; i < 32; ++i) em[i] = 0u - ((static_cast<u32>(exec) >> i) & 1u);
    for (u32 i = 0; i < 32; ++i) em[i + 32] = 0u - ((static_cast<u32>(exec >> 32) >> i) & 1u);
  }
};

// Executes the instruction on a wave, or on its undefined bits if `w` is a shadow.
inline void operate(Wave& w, const Inst& in) { (w.real ? in.op->flow : in.op->run)(w, in); }

[[noreturn]] void fail(const Wave& w, const Inst& in,
                       const std::string& what);  // names kernel, address, instruction

// f(i) for every lane. Two loops from zero with constant counts: compilers vectorise only those (i must not
// wrap).
template <class F>
inline void lanes(const Wave& w, F f) {
  if (w.n == 64)
    for (u32 i = 0; i < 64; ++i) f(i);
  else
    for (u32 i = 0; i < 32; ++i) f(i);
}

// ---- scalar operands
inline u32 read_s32(const Wave& w, const Operand& o) {
  switch (o.kind) {
    case Kind::sgpr: return w.s[o.index];
    case Kind::constant: return static_cast<u32>(o.value);
    case Kind::scc: return w.scc;
    case Kind::execz: return w.exec == 0;
    case Kind::vccz: return w.s[kVcc] == 0 && (w.n == 32 || w.s[kVcc + 1] == 0);
    default: return 0;
  }
}
inline u64 read_s64(const Wave& w, const Operand& o) {
  if (o.kind == Kind::sgpr && o.index != kNull)
    return w.s[o.index] | static_cast<u64>(w.s[o.index + 1]) << 32;
  return o.kind == Kind::constant ? o.value : read_s32(w, o);
}
inline u64 read_scalar(const Wave& w, const Operand& o) {  // as wide as it is
  return o.kind == Kind::sgpr && o.width == 1 ? read_s32(w, o) : read_s64(w, o);
}
inline u64 read_mask(const Wave& w, const Operand& o) {  // a lane mask: one or two SGPRs
  return (w.n == 32 ? read_s32(w, o) : read_s64(w, o)) & w.all;
}
inline void write_s32(Wave& w, const Operand& o, u32 x) {
  if (o.index == kNull) return;
  w.s[o.index] = x;
  if (o.index >= kExec) w.set_exec(w.s[kExec] | static_cast<u64>(w.s[kExec + 1]) << 32);
}
inline void write_s64(Wave& w, const Operand& o, u64 x) {
  if (o.index == kNull) return;
  w.s[o.index] = static_cast<u32>(x);
  w.s[o.index + 1] = static_cast<u32>(x >> 32);
  if (o.index == kExec) w.set_exec(x);
}
inline void write_mask(Wave& w, const Operand& o, u64 x) {
  if (w.n == 32)
    write_s32(w, o, static_cast<u32>(x));
  else
    write_s64(w, o, x);
}

// ---- vector operands: raw words. dword 1 is the high half of a 64-bit operand.
inline const u32* read_raw(const Wave& w, const Operand& o, u32* tmp, u32 dword = 0) {
  if (o.kind == Kind::vgpr) return w.v[o.index + dword];
  if (o.kind == Kind::constant || o.kind == Kind::lanes) return o.lanes + dword * kLanes;
  u32 x = dword ? static_cast<u32>(read_s64(w, o) >> 32) : read_s32(w, o);
  for (u32 i = 0; i < kLanes; ++i) tmp[i] = x;
  return tmp;
}
inline void commit(Wave& w, const Operand& o, const u32* x, u32 dword = 0) {
  if (o.kind == Kind::vgpr) {
    u32* d = w.v[o.index + dword];
    const u32* em = w.em;
    lanes(w, [=](u32 i) { d[i] = (x[i] & em[i]) | (d[i] & ~em[i]); });
  } else if (o.kind == Kind::lanes) {
    std::memcpy(o.lanes + dword * kLanes, x, w.n * 4);
  }
}
// A 16-bit result into the half named by the operand. The effect on the other half differs by arch.
inline void commit16(Wave& w, const Inst& in, const u32* x) {
  const Operand& o = in.dst[0];
  if (o.kind != Kind::vgpr) return commit(w, o, x);
  u32* d = w.v[o.index];
  if (o.flags & kHigh)
    lanes(w, [&](u32 i) { d[i] = (((d[i] & 0xffffu) | x[i] << 16) & w.em[i]) | (d[i] & ~w.em[i]); });
  else if (in.keep_high)
    lanes(w,
          [&](u32 i) { d[i] = (((d[i] & 0xffff0000u) | (x[i] & 0xffffu)) & w.em[i]) | (d[i] & ~w.em[i]); });
  else
    lanes(w, [&](u32 i) { d[i] = ((x[i] & 0xffffu) & w.em[i]) | (d[i] & ~w.em[i]); });
}

template <class F>
inline F modify(F x, u8 omod, bool clamp, bool dx10) {
  if (omod) x = omod == 1 ? x * F(2) : omod == 2 ? x * F(4) : x * F(0.5);
  if (clamp) x = x != x ? (dx10 ? F(0) : x) : x < F(0) ? F(0) : x > F(1) ? F(1) : x;
  return x;
}

// Halves in the wave's mode. An infinity stays one.
inline u32 saturated_half(u32 h, f32 of) {
  return h - ((h & 0x7fffu) == 0x7c00u && std::fabs(of) != HUGE_VALF ? 1 : 0);
}
inline u32 rounded_half(const Wave& w, f32 x) {
  return w.saturates ? saturated_half(float_to_half(x), x) : float_to_half(x);
}
inline void rounded_halves(const Wave& w, const f32* x, u32* h) {
  floats_to_halves(x, h, static_cast<int>(w.n));
  if (w.saturates) lanes(w, [&](u32 i) { h[i] = saturated_half(h[i], x[i]); });
}

// ---- lane types: how handlers load and store their value types.
struct U32 {
  using T = u32;
  static constexpr Type type = Type::b32;
  static const u32* load(const Wave& w, const Operand& o, u32* tmp) { return read_raw(w, o, tmp); }
  static void store(Wave& w, const Inst& in, u32* x) { commit(w, in.dst[0], x); }
};
struct I32 {
  using T = i32;
  static constexpr Type type = Type::b32;
  static const i32* load(const Wave& w, const Operand& o, i32* tmp) {
    return reinterpret_cast<const i32*>(read_raw(w, o, reinterpret_cast<u32*>(tmp)));
  }
  static void store(Wave& w, const Inst& in, i32* x) { commit(w, in.dst[0], reinterpret_cast<u32*>(x)); }
};
struct F32 {
  using T = f32;
  static constexpr Type type = Type::f32;
  // With the source's modifiers, its denormals in any mode.
  static const f32* modified(const Wave& w, const Operand& o, f32* tmp) {
    u32* t = reinterpret_cast<u32*>(tmp);
    const u32* p = read_raw(w, o, t);
    if (o.flags & (kNeg | kAbs)) {
      u32 keep = o.flags & kAbs ? 0x7fffffffu : ~0u, flip = o.flags & kNeg ? 0x80000000u : 0u;
      lanes(w, [&](u32 i) { t[i] = (p[i] & keep) ^ flip; });
      p = t;
    }
    return reinterpret_cast<const f32*>(p);
  }
  static const f32* load(const Wave& w, const Operand& o, f32* tmp) {
    const f32* p = modified(w, o, tmp);
    if (!w.flushes) return p;
    lanes(w, [&](u32 i) { tmp[i] = flush(p[i]); });
    return tmp;
  }
  static void store(Wave& w, const Inst& in, f32* x) {
    if (in.omod | in.clamp) lanes(w, [&](u32 i) { x[i] = modify(x[i], in.omod, in.clamp, w.dx10_clamp); });
    if (w.flushes) lanes(w, [&](u32 i) { x[i] = flush(x[i]); });
    commit(w, in.dst[0], reinterpret_cast<u32*>(x));
  }
};
struct U16 {  // low 16 bits of a word
  using T = u32;
  static constexpr Type type = Type::b16;
  static const u32* load(const Wave& w, const Operand& o, u32* tmp) {
    const u32* p = read_raw(w, o, tmp);
    u32 shift = o.flags & kHigh ? 16 : 0;
    u32 keep = o.flags & kAbs ? 0x7fffu : 0xffffu, flip = o.flags & kNeg ? 0x8000u : 0u;
    lanes(w, [&](u32 i) { tmp[i] = (p[i] >> shift & keep) ^ flip; });
    return tmp;
  }
  static void store(Wave& w, const Inst& in, u32* x) { commit16(w, in, x); }
};
struct I16 {
  using T = i32;
  static constexpr Type type = Type::b16;
  static const i32* load(const Wave& w, const Operand& o, i32* tmp) {
    u32* t = reinterpret_cast<u32*>(tmp);
    U16::load(w, o, t);
    lanes(w, [&](u32 i) { tmp[i] = static_cast<i16>(t[i]); });
    return tmp;
  }
  static void store(Wave& w, const Inst& in, i32* x) {
    u32* t = reinterpret_cast<u32*>(x);
    lanes(w, [&](u32 i) { t[i] &= 0xffffu; });
    commit16(w, in, t);
  }
};
struct H16 : U16 {  // a half as bits, with constants and modifiers of a half
  static constexpr Type type = Type::f16;
};
struct F16 {  // computed in float, rounded once when stored
  using T = f32;
  static constexpr Type type = Type::f16;
  static const f32* load(const Wave& w, const Operand& o, f32* tmp) {
    alignas(64) u32 t[kLanes];
    halves_to_floats(U16::load(w, o, t), tmp, static_cast<int>(w.n));
    return tmp;
  }
  static void store(Wave& w, const Inst& in, f32* x) {
    alignas(64) u32 t[kLanes];
    rounded_halves(w, x, t);
    if (in.omod | in.clamp) {
      halves_to_floats(t, x, static_cast<int>(w.n));
      lanes(w, [&](u32 i) { x[i] = modify(x[i], in.omod, in.clamp, w.dx10_clamp); });
      rounded_halves(w, x, t);
    }
    commit16(w, in, t);
  }
};
struct U64 {
  using T = u64;
  static constexpr Type type = Type::b64;
  static const u64* load(const Wave& w, const Operand& o, u64* tmp) {
    if (o.kind == Kind::sgpr || o.kind == Kind::scc) {
      u64 x = read_s64(w, o);
      lanes(w, [&](u32 i) { tmp[i] = x; });
      return tmp;
    }
    const u32 *lo = read_raw(w, o, nullptr), *hi = read_raw(w, o, nullptr, 1);
    lanes(w, [&](u32 i) { tmp[i] = lo[i] | static_cast<u64>(hi[i]) << 32; });
    return tmp;
  }
  static void store(Wave& w, const Inst& in, u64* x) {
    alignas(64) u32 lo[kLanes], hi[kLanes];
    lanes(w, [&](u32 i) {
      lo[i] = static_cast<u32>(x[i]);
      hi[i] = static_cast<u32>(x[i] >> 32);
    });
    commit(w, in.dst[0], lo, 0);
    commit(w, in.dst[0], hi, 1);
  }
};
struct I64 {
  using T = i64;
  static constexpr Type type = Type::b64;
  static const i64* load(const Wave& w, const Operand& o, i64* tmp) {
    U64::load(w, o, reinterpret_cast<u64*>(tmp));
    return tmp;
  }
  static void store(Wave& w, const Inst& in, i64* x) { U64::store(w, in, reinterpret_cast<u64*>(x)); }
};
struct F64 {
  using T = f64;
  static constexpr Type type = Type::f64;
  static const f64* load(const Wave& w, const Operand& o, f64* tmp) {
    u64* t = reinterpret_cast<u64*>(tmp);
    U64::load(w, o, t);
    if (o.flags & (kNeg | kAbs)) {
      u64 keep = o.flags & kAbs ? ~0ull >> 1 : ~0ull, flip = o.flags & kNeg ? 1ull << 63 : 0ull;
      lanes(w, [&](u32 i) { t[i] = (t[i] & keep) ^ flip; });
    }
    return tmp;
  }
  static void store(Wave& w, const Inst& in, f64* x) {
    if (in.omod | in.clamp) lanes(w, [&](u32 i) { x[i] = modify(x[i], in.omod, in.clamp, w.dx10_clamp); });
    U64::store(w, in, reinterpret_cast<u64*>(x));
  }
};

// ---- element-wise operations over lane types
template <class D, class A, class F>
inline void map1(Wave& w, const Inst& in, F f) {
  alignas(64) typename A::T ta[kLanes];
  alignas(64) typename D::T d[kLanes];
  const auto* a = A::load(w, in.src[0], ta);
  lanes(w, [&](u32 i) { d[i] = f(a[i]); });
  D::store(w, in, d);
}
template <class D, class A, class B, class F>
inline void map2(Wave& w, const Inst& in, F f) {
  alignas(64) typename A::T ta[kLanes];
  alignas(64) typename B::T tb[kLanes];
  alignas(64) typename D::T d[kLanes];
  const auto* a = A::load(w, in.src[0], ta);
  const auto* b = B::load(w, in.src[1], tb);
  lanes(w, [&](u32 i) { d[i] = f(a[i], b[i]); });
  D::store(w, in, d);
}
template <class D, class A, class B, class C, class F>
inline void map3(Wave& w, const Inst& in, F f) {
  alignas(64) typename A::T ta[kLanes];
  alignas(64) typename B::T tb[kLanes];
  alignas(64) typename C::T tc[kLanes];
  alignas(64) typename D::T d[kLanes];
  const auto* a = A::load(w, in.src[0], ta);
  const auto* b = B::load(w, in.src[1], tb);
  const auto* c = C::load(w, in.src[2], tc);
  lanes(w, [&](u32 i) { d[i] = f(a[i], b[i], c[i]); });
  D::store(w, in, d);
}
// Lane words of all ones or zero, to a mask.
inline u64 pack_mask(const Wave& w, const u32* x) {
  u64 m = 0;
  for (u32 i = 0; i < w.n; i += 8) {
    __m256 r = _mm256_loadu_ps(reinterpret_cast<const float*>(x + i));
    m |= static_cast<u64>(static_cast<u32>(_mm256_movemask_ps(r))) << i;
  }
  return m;
}
}  // namespace emu
