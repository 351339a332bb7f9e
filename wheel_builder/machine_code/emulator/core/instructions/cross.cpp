// Moves of data between lanes or between register files, and the DPP, SDWA and VOPD wrappers.
#include "code/decode.hpp"
#include "code/ops.hpp"
#include "run/launch.hpp"
#include "run/memory.hpp"

namespace emu {
namespace {
u32 first_lane(u64 exec) { return exec ? static_cast<u32>(__builtin_ctzll(exec)) : 0; }

void readfirstlane(Wave& w, const Inst& in) {
  alignas(64) u32 t[kLanes];
  write_s32(w, in.dst[0], read_raw(w, in.src[0], t)[first_lane(w.exec)]);
}
void readlane(Wave& w, const Inst& in) {
  alignas(64) u32 t[kLanes];
  write_s32(w, in.dst[0], read_raw(w, in.src[0], t)[read_s32(w, in.src[1]) & (w.n - 1)]);
}
void writelane(Wave& w, const Inst& in) {
  w.v[in.dst[0].index][read_s32(w, in.src[1]) & (w.n - 1)] = read_s32(w, in.src[0]);
}
void swap(Wave& w, const Inst& in) {
  alignas(64) u32 a[kLanes], b[kLanes];
  std::memcpy(a, w.v[in.dst[0].index], sizeof a);
  std::memcpy(b, w.v[in.dst[1].index], sizeof b);
  commit(w, in.dst[0], b);
  commit(w, in.dst[1], a);
}
// Swaps the lower half of every 2 * kHalf lanes of the second register with the upper half of the first
// one's.
template <u32 kHalf>
void swap_halves(Wave& w, const Inst& in) {
  if (w.exec != w.all) fail(w, in, "what it does to lanes that are off is not published");
  u32 *upper = w.v[in.dst[0].index], *lower = w.v[in.dst[1].index];
  for (u32 i = 0; i < w.n; ++i)
    if (!(i & kHalf)) std::swap(lower[i], upper[i + kHalf]);
}
void mbcnt(Wave& w, const Inst& in, bool high) {
  alignas(64) u32 ta[kLanes], tb[kLanes], d[kLanes];
  const u32 *a = U32::load(w, in.src[0], ta), *b = U32::load(w, in.src[1], tb);
  for (u32 i = 0; i < w.n; ++i) {
    u32 below = high ? (i >= 32 ? (1u << (i - 32)) - 1 : 0) : (i >= 32 ? ~0u : (1u << i) - 1);
    d[i] = static_cast<u32>(__builtin_popcount(a[i] & below)) + b[i];
  }
  commit(w, in.dst[0], d);
}

// Lane i of a row of 16 reads a lane of its own (or the other) row. Nibble i of src1:src2 is its number.
void permlane16(Wave& w, const Inst& in, u32 other_row) {
  alignas(64) u32 ta[kLanes], tb[kLanes], tc[kLanes], d[kLanes];
  const u32 *a = U32::load(w, in.src[0], ta), *lo = U32::load(w, in.src[1], tb),
            *hi = U32::load(w, in.src[2], tc);
  bool fetch_inactive = in.op_sel_bits & 1, bound_zero = in.op_sel_bits & 2;
  const u32* old = w.v[in.dst[0].index];
  for (u32 i = 0; i < w.n; ++i) {
    u32 in_row = i & 15, sel = ((in_row < 8 ? lo : hi)[i] >> (4 * (in_row & 7))) & 15;
    u32 from = ((i & ~15u) ^ other_row) + sel;
    bool valid = fetch_inactive || (w.exec >> from & 1);
    d[i] = valid ? a[from] : bound_zero ? 0 : old[i];
  }
  commit(w, in.dst[0], d);
}
void permlane64(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes], d[kLanes];
  const u32* a = U32::load(w, in.src[0], ta);
  for (u32 i = 0; i < w.n; ++i) d[i] = a[w.n == 64 ? i ^ 32 : i];
  commit(w, in.dst[0], d);
}

void bpermute(Wave& w, const Inst& in) {  // dst, address, data
  alignas(64) u32 ta[kLanes], tb[kLanes], d[kLanes];
  const u32 *a = U32::load(w, in.src[0], ta), *x = U32::load(w, in.src[1], tb);
  for (u32 i = 0; i < w.n; ++i) {
    u32 from = (a[i] + static_cast<u32>(in.offset)) / 4 & (w.n - 1);
    d[i] = w.exec >> from & 1 ? x[from] : 0;
  }
  commit(w, in.dst[0], d);
}
void permute(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes], tb[kLanes], d[kLanes] = {0};
  const u32 *a = U32::load(w, in.src[0], ta), *x = U32::load(w, in.src[1], tb);
  for (u32 i = 0; i < w.n; ++i)
    if (w.exec >> i & 1) d[(a[i] + static_cast<u32>(in.offset)) / 4 & (w.n - 1)] = x[i];
  commit(w, in.dst[0], d);
}
u32 swizzle_source(u32 i, u32 spec, bool rotate_mode) {
  if (rotate_mode && spec >= 0xe000) return ~0u;
  if (rotate_mode && spec >= 0xc000) {  // rotate within 32, some bits kept
    u32 keep = spec & 31, n = spec >> 5 & 31, dir = spec >> 10 & 1, j = i & 31;
    u32 r = dir ? (j - n) & 31 : (j + n) & 31;
    return (i & ~31u) | (j & keep) | (r & ~keep & 31);
  }
  if (spec & 0x8000) return (i & ~3u) | (spec >> (2 * (i & 3)) & 3);
  u32 and_mask = spec & 31, or_mask = spec >> 5 & 31, xor_mask = spec >> 10 & 31;
  return (i & ~31u) | ((((i & 31) & and_mask) | or_mask) ^ xor_mask);
}
void swizzle(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes], d[kLanes];
  const u32* x = U32::load(w, in.src[0], ta);
  for (u32 i = 0; i < w.n; ++i) {
    u32 from = swizzle_source(i, static_cast<u32>(in.offset) & 0xffff, true);
    if (from == ~0u) fail(w, in, "FFT swizzle mode is not implemented");
    d[i] = w.exec >> from & 1 ? x[from] : 0;
  }
  commit(w, in.dst[0], d);
}
void bind_swizzle(Program&, Inst& in, const std::string&) {
  in.offset = static_cast<i32>(in.words[0] & 0xffff);
}

u32 select(u32 x, DstSel sel, bool sign) {
  switch (sel) {
    case DstSel::dword: return x;
    case DstSel::word0:
    case DstSel::word1: {
      u32 h = x >> (sel == DstSel::word1 ? 16 : 0) & 0xffffu;
      return sign ? static_cast<u32>(static_cast<i32>(static_cast<i16>(h))) : h;
    }
    default: {
      u32 b = x >> (8 * static_cast<u32>(sel)) & 0xffu;
      return sign ? static_cast<u32>(static_cast<i32>(static_cast<i8>(b))) : b;
    }
  }
}
u32 merge(u32 old, u32 x, DstSel sel, u8 unused) {
  u32 shift = sel <= DstSel::byte3 ? 8 * static_cast<u32>(sel) : sel == DstSel::word1 ? 16 : 0;
  u32 width = sel <= DstSel::byte3 ? 8 : 16, mask = ((1u << width) - 1) << shift, placed = x << shift & mask;
  if (unused == 2) return (old & ~mask) | placed;
  if (unused == 1) {
    u32 up = shift + width;
    return placed | (up < 32 && (placed >> (up - 1) & 1) ? ~0u << up : 0);
  }
  return placed;
}
}  // namespace

// Source 0 comes from other lanes. Lanes without a source keep their old result, or read zero.
void run_dpp(Wave& w, const Inst& in) {
  const Dpp& d = *in.dpp;
  alignas(64) u32 raw[2][kLanes], moved[2 * kLanes], saved[kLanes];
  Inst one = in;
  u64 old_exec = w.exec, enabled = d.enabled;
  u32 width = in.src[0].width;
  for (u32 i = 0; i < w.n; ++i) {
    i32 from = d.src[i];
    bool valid = from >= 0 && from < static_cast<i32>(w.n) && (d.fetch_inactive || (old_exec >> from & 1));
    for (u32 k = 0; k < width; ++k)
      moved[k * kLanes + i] = valid ? read_raw(w, in.src[0], raw[k], k)[from] : 0;
    if (!valid && !d.bound_zero) enabled &= ~(1ull << i);
  }
  one.src[0].kind = Kind::lanes;
  one.src[0].lanes = moved;
  std::memcpy(saved, w.em, sizeof saved);
  w.exec = old_exec & enabled;
  w.expand();
  operate(w, one);
  w.exec = old_exec;
  std::memcpy(w.em, saved, sizeof saved);
}

void run_sdwa(Wave& w, const Inst& in) {
  const Sdwa& s = *in.sdwa;
  alignas(64) u32 src[2][kLanes], out[kLanes], tmp[kLanes];
  Inst one = in;
  for (u32 k = 0; k < 2 && k < in.nsrc; ++k) {
    Operand& o = one.src[k];
    if (s.src[k] == DstSel::dword && !(o.flags & kSext)) continue;
    const u32* x = read_raw(w, in.src[k], tmp);
    for (u32 i = 0; i < w.n; ++i) src[k][i] = select(x[i], s.src[k], o.flags & kSext);
    o.kind = Kind::lanes;
    o.lanes = src[k];
    o.flags &= static_cast<u8>(~kHigh);
  }
  bool vector_dst = in.ndst && in.dst[0].kind == Kind::vgpr && s.dst != DstSel::dword;
  if (!vector_dst) return operate(w, one);
  one.dst[0].kind = Kind::lanes;
  one.dst[0].lanes = out;
  operate(w, one);
  const u32* old = w.v[in.dst[0].index];
  for (u32 i = 0; i < w.n; ++i) out[i] = merge(old[i], out[i], s.dst, s.unused);
  commit(w, in.dst[0], out);
}

// Both halves read their sources before either writes: the first writes to the side until the second is done.
void run_dual(Wave& w, const Inst& in) {
  alignas(64) u32 out[2 * kLanes];
  Inst first = in;
  first.dst[0].kind = Kind::lanes;
  first.dst[0].lanes = out;
  operate(w, first);
  operate(w, *in.dual);
  commit(w, in.dst[0], out);
}

Inst indexed(Wave& w, const Inst& in) {
  Inst out = in;
  const u32 which = in.aux & kMovrel ? in.aux >> kMovrelShift & 15 : w.s[kM0] >> 12 & 15;
  auto move = [&](Operand& o) {
    if (o.kind != Kind::vgpr || o.index >= kAcc) return;
    const u32 to = o.index + (w.s[kM0] & 0xff);
    if (to + o.width > kAcc) fail(w, in, "M0 moves a register beyond v255");
    o.index = static_cast<u16>(to);
  };
  if (in.op->cls != Class::valu && in.op->cls != Class::trans) return out;
  if (in.aux & kMovrel && w.shadow && w.shadow->s[kM0])
    found({w, in, 0}, "undefined-address", 0, "the register depends on bits that nothing has computed");
  for (u32 k = 0; k < 3 && k < in.nsrc; ++k)
    if (which >> k & 1) move(out.src[k]);
  if (which & kMovesDst && in.ndst) move(out.dst[0]);
  return out;
}

void run_missing(Wave& w, const Inst& in) {
  fail(w, in, std::string("mnemonic '") + in.op->name + "' is not implemented");
}

void add_cross(Ops& t) {
  auto add = [&](const char* name, Handler h, Class c, u8 dsts, u32 flags = 0) -> OpInfo& {
    return t.add({name, h, c, dsts, {Type::b32}, flags, nullptr});
  };
  add("v_readfirstlane_b32", readfirstlane, Class::valu, 1).follows(flow::moves<>);
  add("v_readlane_b32", readlane, Class::valu, 1).follows(flow::moves<>);
  add("v_writelane_b32", writelane, Class::valu, 1).follows(flow::moves<>);
  add("v_swap_b32", swap, Class::valu, 2).follows(flow::moves<0b11>);
  add("v_permlane16_swap_b32", swap_halves<16>, Class::valu, 2).follows(flow::moves<0b11>);
  add("v_permlane32_swap_b32", swap_halves<32>, Class::valu, 2).follows(flow::moves<0b11>);
  add("v_mbcnt_lo_u32_b32", [](Wave& w, const Inst& in) { mbcnt(w, in, false); }, Class::valu, 1);
  add("v_mbcnt_hi_u32_b32", [](Wave& w, const Inst& in) { mbcnt(w, in, true); }, Class::valu, 1);
  add(
      "v_permlane16_b32", [](Wave& w, const Inst& in) { permlane16(w, in, 0); }, Class::valu, 1, kOpSelBits)
      .follows(flow::moves<>);
  add(
      "v_permlanex16_b32", [](Wave& w, const Inst& in) { permlane16(w, in, 16); }, Class::valu, 1, kOpSelBits)
      .follows(flow::moves<>);
  auto relative = [&](const char* name, void (*bind)(Program&, Inst&, const std::string&)) {
    auto copy = [](Wave& w, const Inst& in) { map1<U32, U32>(w, in, [](u32 a) { return a; }); };
    t.add({name, copy, Class::valu, 1, {Type::b32}, 0, bind}).follows(flow::moves<>);
  };
  relative("v_movrels_b32",
           [](Program&, Inst& in, const std::string&) { in.aux = kMovrel | kMovesSrc0 << kMovrelShift; });
  relative("v_movreld_b32",
           [](Program&, Inst& in, const std::string&) { in.aux = kMovrel | kMovesDst << kMovrelShift; });
  relative("v_movrelsd_b32", [](Program&, Inst& in, const std::string&) {
    in.aux = kMovrel | (kMovesSrc0 | kMovesDst) << kMovrelShift;
  });
  add("v_permlane64_b32", permlane64, Class::valu, 1).follows(flow::moves<>);
  add("ds_bpermute_b32", bpermute, Class::lds, 1).follows(flow::moves<0b10>);
  add("ds_permute_b32", permute, Class::lds, 1).follows(flow::moves<0b10>);
  t.add({"ds_swizzle_b32", swizzle, Class::lds, 1, {Type::b32}, 0, bind_swizzle}).follows(flow::moves<>);
  V1(v_accvgpr_read_b32, U32, U32, a).follows(flow::moves<>);
  V1(v_accvgpr_write_b32, U32, U32, a).follows(flow::moves<>);
  V1(v_accvgpr_mov_b32, U32, U32, a).follows(flow::moves<>);
}
}  // namespace emu
