// LDS instructions. Cross-lane ones of the same encoding are in cross.cpp.
#include "code/ops.hpp"
#include "instructions/transfer.hpp"

namespace emu {
namespace {
struct LdsPlace {
  Wave& w;
  const Inst& in;
  const u32* address;
  u32 offset;
  u8* operator()(u32 lane, u32 more, u32 bytes, Mode mode) const {
    return lds({w, in, lane}, address[lane] + offset + more, bytes, mode);
  }
};

// All active lanes' bytes, if each is in LDS and aligned, and a race is excluded.
struct WholeLds : Whole {
  bool noted = false;
  WholeLds(Wave& w, const u32* from, u32 more, u32 bytes, Mode mode) {
    lanes(w, [&](u32 i) {
      offset[i] = from[i] + more;
      on[i] = w.em[i];
    });
    const Spread s = spread(w, offset, on);
    if (!w.exec || u64{s.most} + bytes > w.lds_size || s.bits & alignment_mask(bytes)) return;
    base = w.lds;
    noted = w.group->lds_history.empty() || note_lds(w, offset, bytes, mode);
  }
};
// Whether all bytes of the active lanes' dwords are defined.
template <u32 kDwords>
bool all_defined(const Wave& w, const Whole& at) {
  const std::vector<u8>& undefined = w.group->lds_undefined;
  if (undefined.empty()) return true;
  u32 any = 0;
  for (u64 m = w.exec; m; m &= m - 1) {
    u32 x[kDwords];
    std::memcpy(x, undefined.data() + at.offset[__builtin_ctzll(m)], sizeof x);
    for (u32 d = 0; d < kDwords; ++d) any |= x[d];
  }
  return !any;
}
template <Load kKind, u32 kDwords>
void load_from(Wave& w, const Inst& in, const u32* address, u32 offset) {
  WholeLds at(w, address, offset, load_bytes(kKind, kDwords), Mode::read);
  if constexpr (kKind == Load::dwords)
    if (at.noted && all_defined<kDwords>(w, at)) return load_whole<kDwords>(w, in, at);
  w.lds_noted = at.noted;
  load_lanes(w, in, kKind, kDwords, LdsPlace{w, in, address, offset});
  w.lds_noted = false;
}
template <Load kKind, u32 kDwords>
void ds_load(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes];
  load_from<kKind, kDwords>(w, in, read_raw(w, in.src[0], ta), static_cast<u32>(in.offset));
}
// Of each 16 lanes, lane l gets halfword l % 4 of the values loaded by lanes l / 4, l / 4 + 4, ...
void transpose_halves(u32 (*v)[kLanes], u32 n) {
  u32 loaded[2][kLanes];
  std::memcpy(loaded, v, sizeof loaded);
  const auto half = [&](u32 lane, u32 at) { return loaded[at / 2][lane] >> (16 * (at % 2)) & 0xffffu; };
  for (u32 l = 0; l < n; ++l) {
    const u32 from = (l & ~15u) + l / 4 % 4;
    for (u32 d = 0; d < 2; ++d) v[d][l] = half(from + 8 * d, l % 4) | half(from + 8 * d + 4, l % 4) << 16;
  }
}
// Of each 16 lanes, lane l gets byte l % 8 of the values loaded by lanes l / 8, l / 8 + 2, ... By public code
// (Composable Kernel's Quad8, HipKittens); no document and no hardware says so.
void transpose_bytes(u32 (*v)[kLanes], u32 n) {
  u32 loaded[2][kLanes];
  std::memcpy(loaded, v, sizeof loaded);
  for (u32 l = 0; l < n; ++l) {
    const u32 from = (l & ~15u) + l / 8 % 2, at = l % 8;
    for (u32 d = 0; d < 2; ++d) {
      v[d][l] = 0;
      for (u32 k = 0; k < 4; ++k)
        v[d][l] |= (loaded[at / 4][from + 8 * d + 2 * k] >> (8 * (at % 4)) & 0xffu) << (8 * k);
    }
  }
}
template <void (*kTranspose)(u32 (*)[kLanes], u32)>
void ds_load_transposed(Wave& w, const Inst& in) {
  if (w.exec != w.all) fail(w, in, "a transposed load needs all lanes");
  ds_load<Load::dwords, 2>(w, in);
  kTranspose(w.v + in.dst[0].index, w.n);
  if (!w.shadow) return;
  kTranspose(w.shadow->v + in.dst[0].index, w.n);
  update_dirty(*w.shadow, in.dst[0], 2);
}
// Whether the data of all active lanes is defined.
bool all_defined(const Wave& w, const Operand& data, u32 dwords) {
  if (!w.shadow) return true;
  if (data.kind != Kind::vgpr) return data.kind == Kind::constant;
  u32 any = 0;
  for (u32 d = 0; is_dirty(*w.shadow, data, dwords) && d < dwords; ++d)
    lanes(w, [&](u32 i) { any |= w.shadow->v[data.index + d][i] & w.em[i]; });
  return !any;
}
// If lanes store to the same bytes, the last lane wins, as lane by lane.
template <u32 kBytes>
void store_whole(Wave& w, const Operand& data, bool high, const Whole& at) {
  constexpr u32 kDwords = (kBytes + 3) / 4;
  alignas(64) u32 tmp[kDwords][kLanes];
  const u32* d[kDwords];
  for (u32 k = 0; k < kDwords; ++k) d[k] = read_raw(w, data, tmp[k], k);
  u8* undefined = w.group->lds_undefined.empty() ? nullptr : w.group->lds_undefined.data();
  for (u64 m = w.exec; m; m &= m - 1) {
    const u32 i = static_cast<u32>(__builtin_ctzll(m)), to = at.offset[i];
    u32 x[kDwords];
    for (u32 k = 0; k < kDwords; ++k) x[k] = d[k][i];
    if (kBytes < 4 && high) x[0] >>= 16;
    std::memcpy(w.lds + to, x, kBytes);
    if (undefined) std::memset(undefined + to, 0, kBytes);
  }
}
template <u32 kBytes>
void store_to(Wave& w, const Inst& in, const Operand& data, bool high, const u32* address, u32 offset) {
  const WholeLds at(w, address, offset, kBytes, Mode::write);
  if (at.noted && all_defined(w, data, (kBytes + 3) / 4)) return store_whole<kBytes>(w, data, high, at);
  w.lds_noted = at.noted;
  store_lanes(w, data, kBytes, high, LdsPlace{w, in, address, offset});
  w.lds_noted = false;
}
template <u32 kBytes, bool kHi>
void ds_store(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes];
  const bool high = kHi || (in.src[1].flags & kHigh);
  store_to<kBytes>(w, in, in.src[1], high, read_raw(w, in.src[0], ta), static_cast<u32>(in.offset));
}
// Two elements of 4 or 8 bytes at offsets in units of the element (times 64).
template <u32 kDwords, u32 kScale>
void ds_load2(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes];
  alignas(64) u32 copy[kLanes];
  std::memcpy(copy, read_raw(w, in.src[0], ta), sizeof copy);  // the destination may overlap the address
  constexpr u32 unit = kDwords * 4 * kScale;
  Inst half = in;
  load_from<Load::dwords, kDwords>(w, half, copy, static_cast<u32>(in.offset) * unit);
  half.dst[0].index = static_cast<u16>(half.dst[0].index + kDwords);
  load_from<Load::dwords, kDwords>(w, half, copy, static_cast<u32>(in.offset1) * unit);
}
template <u32 kDwords, u32 kScale>
void ds_store2(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes];
  const u32* a = read_raw(w, in.src[0], ta);
  constexpr u32 unit = kDwords * 4 * kScale;
  store_to<kDwords * 4>(w, in, in.src[1], false, a, static_cast<u32>(in.offset) * unit);
  store_to<kDwords * 4>(w, in, in.src[2], false, a, static_cast<u32>(in.offset1) * unit);
}
template <class T, class F>
void ds_atomic(Wave& w, const Inst& in, bool returns, F f) {
  alignas(64) u32 ta[kLanes];
  LdsPlace place{w, in, read_raw(w, in.src[0], ta), static_cast<u32>(in.offset)};
  const Operand* second = in.nsrc > 2 ? &in.src[2] : nullptr;
  atomic_lanes<T>(w, in, in.src[1], second, returns, place, f);
}
template <class T>
void ds_cmpstore(Wave& w, const Inst& in, bool returns, bool data_first) {
  ds_atomic<T>(w, in, returns,
               [=](T x, T a, T b) { return data_first ? (x == b ? a : x) : (x == a ? b : x); });
}
void ds_load_addtid(Wave& w, const Inst& in) {
  alignas(64) u32 a[kLanes];
  for (u32 i = 0; i < kLanes; ++i) a[i] = (w.s[kM0] & 0xffff) + 4 * i;
  load_lanes(w, in, Load::dwords, 1, LdsPlace{w, in, a, static_cast<u32>(in.offset)});
}

constexpr Type kB = Type::b32;
void add(Ops& t, const char* name, Handler h, u8 dsts) {
  t.add({name, h, Class::lds, dsts, {kB}, 0, nullptr});
}
}  // namespace

void add_lds(Ops& t) {
  add(t, "ds_read_b32", ds_load<Load::dwords, 1>, 1);
  add(t, "ds_read_b64", ds_load<Load::dwords, 2>, 1);
  add(t, "ds_read_b96", ds_load<Load::dwords, 3>, 1);
  add(t, "ds_read_b128", ds_load<Load::dwords, 4>, 1);
  add(t, "ds_read_u8", ds_load<Load::u8_, 1>, 1);
  add(t, "ds_read_i8", ds_load<Load::i8_, 1>, 1);
  add(t, "ds_read_u16", ds_load<Load::u16_, 1>, 1);
  add(t, "ds_read_i16", ds_load<Load::i16_, 1>, 1);
  add(t, "ds_read_u8_d16", ds_load<Load::d16_u8, 1>, 1);
  add(t, "ds_read_i8_d16", ds_load<Load::d16_i8, 1>, 1);
  add(t, "ds_read_u16_d16", ds_load<Load::d16, 1>, 1);
  add(t, "ds_read_u8_d16_hi", ds_load<Load::d16_hi_u8, 1>, 1);
  add(t, "ds_read_i8_d16_hi", ds_load<Load::d16_hi_i8, 1>, 1);
  add(t, "ds_read_u16_d16_hi", ds_load<Load::d16_hi, 1>, 1);
  add(t, "ds_read2_b32", ds_load2<1, 1>, 1);
  add(t, "ds_read2_b64", ds_load2<2, 1>, 1);
  add(t, "ds_read2st64_b32", ds_load2<1, 64>, 1);
  add(t, "ds_read2st64_b64", ds_load2<2, 64>, 1);
  add(t, "ds_read_b64_tr_b16", ds_load_transposed<transpose_halves>, 1);
  add(t, "ds_read_b64_tr_b8", ds_load_transposed<transpose_bytes>, 1);
  add(t, "ds_read_addtid_b32", ds_load_addtid, 1);
  add(t, "ds_write_b8", ds_store<1, false>, 0);
  add(t, "ds_write_b16", ds_store<2, false>, 0);
  add(t, "ds_write_b32", ds_store<4, false>, 0);
  add(t, "ds_write_b64", ds_store<8, false>, 0);
  add(t, "ds_write_b96", ds_store<12, false>, 0);
  add(t, "ds_write_b128", ds_store<16, false>, 0);
  add(t, "ds_write_b8_d16_hi", ds_store<1, true>, 0);
  add(t, "ds_write_b16_d16_hi", ds_store<2, true>, 0);
  add(t, "ds_write2_b32", ds_store2<1, 1>, 0);
  add(t, "ds_write2_b64", ds_store2<2, 1>, 0);
  add(t, "ds_write2st64_b32", ds_store2<1, 64>, 0);
  add(t, "ds_write2st64_b64", ds_store2<2, 64>, 0);
  const char* renamed[][2] = {{"ds_load_b32", "ds_read_b32"},
                              {"ds_load_b64", "ds_read_b64"},
                              {"ds_load_b96", "ds_read_b96"},
                              {"ds_load_b128", "ds_read_b128"},
                              {"ds_load_u8", "ds_read_u8"},
                              {"ds_load_i8", "ds_read_i8"},
                              {"ds_load_u16", "ds_read_u16"},
                              {"ds_load_i16", "ds_read_i16"},
                              {"ds_load_u8_d16", "ds_read_u8_d16"},
                              {"ds_load_i8_d16", "ds_read_i8_d16"},
                              {"ds_load_u16_d16", "ds_read_u16_d16"},
                              {"ds_load_u8_d16_hi", "ds_read_u8_d16_hi"},
                              {"ds_load_i8_d16_hi", "ds_read_i8_d16_hi"},
                              {"ds_load_u16_d16_hi", "ds_read_u16_d16_hi"},
                              {"ds_load_2addr_b32", "ds_read2_b32"},
                              {"ds_load_2addr_b64", "ds_read2_b64"},
                              {"ds_load_2addr_stride64_b32", "ds_read2st64_b32"},
                              {"ds_load_2addr_stride64_b64", "ds_read2st64_b64"},
                              {"ds_store_b8", "ds_write_b8"},
                              {"ds_store_b16", "ds_write_b16"},
                              {"ds_store_b32", "ds_write_b32"},
                              {"ds_store_b64", "ds_write_b64"},
                              {"ds_store_b96", "ds_write_b96"},
                              {"ds_store_b128", "ds_write_b128"},
                              {"ds_store_b8_d16_hi", "ds_write_b8_d16_hi"},
                              {"ds_store_b16_d16_hi", "ds_write_b16_d16_hi"},
                              {"ds_store_2addr_b32", "ds_write2_b32"},
                              {"ds_store_2addr_b64", "ds_write2_b64"},
                              {"ds_store_2addr_stride64_b32", "ds_write2st64_b32"},
                              {"ds_store_2addr_stride64_b64", "ds_write2st64_b64"}};
  for (auto& r : renamed) t.alias(r[0], r[1]);

#define ATOMIC(name, rtn, T, expr)                          \
  add(                                                      \
      t, #name,                                             \
      [](Wave& w, const Inst& in) {                         \
        ds_atomic<T>(w, in, false, [](T x, T a, T b) -> T { \
          (void)b;                                          \
          (void)x;                                          \
          return expr;                                      \
        });                                                 \
      },                                                    \
      0);                                                   \
  add(                                                      \
      t, #rtn,                                              \
      [](Wave& w, const Inst& in) {                         \
        ds_atomic<T>(w, in, true, [](T x, T a, T b) -> T {  \
          (void)b;                                          \
          (void)x;                                          \
          return expr;                                      \
        });                                                 \
      },                                                    \
      1);
  ATOMIC(ds_add_u32, ds_add_rtn_u32, u32, x + a)
  ATOMIC(ds_sub_u32, ds_sub_rtn_u32, u32, x - a)
  ATOMIC(ds_rsub_u32, ds_rsub_rtn_u32, u32, a - x)
  ATOMIC(ds_inc_u32, ds_inc_rtn_u32, u32, x >= a ? 0 : x + 1)
  ATOMIC(ds_dec_u32, ds_dec_rtn_u32, u32, x == 0 || x > a ? a : x - 1)
  ATOMIC(ds_min_i32, ds_min_rtn_i32, u32, static_cast<i32>(x) < static_cast<i32>(a) ? x : a)
  ATOMIC(ds_max_i32, ds_max_rtn_i32, u32, static_cast<i32>(x) > static_cast<i32>(a) ? x : a)
  ATOMIC(ds_min_u32, ds_min_rtn_u32, u32, x < a ? x : a)
  ATOMIC(ds_max_u32, ds_max_rtn_u32, u32, x > a ? x : a)
  ATOMIC(ds_and_b32, ds_and_rtn_b32, u32, x & a)
  ATOMIC(ds_or_b32, ds_or_rtn_b32, u32, x | a)
  ATOMIC(ds_xor_b32, ds_xor_rtn_b32, u32, x ^ a)
  ATOMIC(ds_add_f32, ds_add_rtn_f32, u32, bits<u32>(bits<f32>(x) + bits<f32>(a)))
  ATOMIC(ds_min_f32, ds_min_rtn_f32, u32, bits<u32>(pick_f32(bits<f32>(x), bits<f32>(a), false, true)))
  ATOMIC(ds_max_f32, ds_max_rtn_f32, u32, bits<u32>(pick_f32(bits<f32>(x), bits<f32>(a), true, true)))
  t.alias("ds_min_num_f32", "ds_min_f32");
  t.alias("ds_max_num_f32", "ds_max_f32");
  t.alias("ds_min_num_rtn_f32", "ds_min_rtn_f32");
  t.alias("ds_max_num_rtn_f32", "ds_max_rtn_f32");
  ATOMIC(ds_add_u64, ds_add_rtn_u64, u64, x + a)
  ATOMIC(ds_or_b64, ds_or_rtn_b64, u64, x | a)
  ATOMIC(ds_and_b64, ds_and_rtn_b64, u64, x & a)
  ATOMIC(ds_add_f64, ds_add_rtn_f64, u64, bits<u64>(bits<f64>(x) + bits<f64>(a)))
  add(
      t, "ds_wrxchg_rtn_b32",
      [](Wave& w, const Inst& in) { ds_atomic<u32>(w, in, true, [](u32, u32 a, u32) { return a; }); }, 1);
  add(
      t, "ds_wrxchg_rtn_b64",
      [](Wave& w, const Inst& in) { ds_atomic<u64>(w, in, true, [](u64, u64 a, u64) { return a; }); }, 1);
  t.alias("ds_storexchg_rtn_b32", "ds_wrxchg_rtn_b32");
  t.alias("ds_storexchg_rtn_b64", "ds_wrxchg_rtn_b64");
  // ds_cmpst: compare value first, then the new one. ds_cmpstore (gfx11): the other way round.
  add(t, "ds_cmpst_b32", [](Wave& w, const Inst& in) { ds_cmpstore<u32>(w, in, false, false); }, 0);
  add(t, "ds_cmpst_rtn_b32", [](Wave& w, const Inst& in) { ds_cmpstore<u32>(w, in, true, false); }, 1);
  add(t, "ds_cmpst_rtn_b64", [](Wave& w, const Inst& in) { ds_cmpstore<u64>(w, in, true, false); }, 1);
  add(t, "ds_cmpstore_b32", [](Wave& w, const Inst& in) { ds_cmpstore<u32>(w, in, false, true); }, 0);
  add(t, "ds_cmpstore_rtn_b32", [](Wave& w, const Inst& in) { ds_cmpstore<u32>(w, in, true, true); }, 1);
  add(t, "ds_cmpstore_rtn_b64", [](Wave& w, const Inst& in) { ds_cmpstore<u64>(w, in, true, true); }, 1);
}
}  // namespace emu
