// MFMA and WMMA of bytes, into sums of 32 bits. They wrap or, with WMMA's clamp, saturate.
#include <algorithm>

#include "matrix/layout.hpp"

namespace emu {
namespace {
// Byte e of every lane's operand registers. Sums are those of unsigned numbers: they wrap.
void bytes(const Wave& w, const Operand& o, u32 e, bool is_signed, u32* out) {
  alignas(64) u32 tmp[kLanes];
  const u32 *p = read_raw(w, o, tmp, e / 4), shift = 8 * (e % 4);
  if (is_signed)
    lanes(w, [&](u32 i) { out[i] = static_cast<u32>(static_cast<i32>(static_cast<i8>(p[i] >> shift))); });
  else
    lanes(w, [&](u32 i) { out[i] = p[i] >> shift & 0xff; });
}
template <u32 kN, u32 kK, u32 kRows>
inline void rows_add(u32* const* acc, const u32* const* a, const u32* const* b, u32 i) {
  alignas(64) u32 sum[kRows][kN];
  for (u32 r = 0; r < kRows; ++r) std::memcpy(sum[r], acc[r], sizeof sum[r]);
  for (u32 k = 0; k < kK; ++k)
    for (u32 r = 0; r < kRows; ++r) {
      const u32 x = a[k][i + r], *column = b[k];
      for (u32 j = 0; j < kN; ++j) sum[r][j] += x * column[j];
    }
  for (u32 r = 0; r < kRows; ++r) std::memcpy(acc[r], sum[r], sizeof sum[r]);
}

template <u32 kM, u32 kK, u32 kBlocks>
void mfma_bytes(Wave& w, const Inst& in) {
  constexpr u32 kGroups = groups_of(kM, kBlocks), kPer = kK / kGroups;
  constexpr u32 kRegs = kM * kM * kBlocks / 64, kRows = rows_at_once(kM);
  alignas(64) u32 a[kPer][kLanes], b[kPer][kLanes];
  for (u32 e = 0; e < kPer; ++e) {
    bytes(w, in.src[0], e, true, a[e]);
    bytes(w, in.src[1], e, true, b[e]);
  }
  copy_accumulator(w, in, kRegs);
  for (u32 block = 0; block < kBlocks; ++block) {
    const u32 *pa[kK], *pb[kK];
    for (u32 k = 0; k < kK; ++k) {
      const u32 lane = (block * kGroups + k / kPer) * kM;
      pa[k] = a[k % kPer] + lane;
      pb[k] = b[k % kPer] + lane;
    }
    for (u32 i = 0; i < kM; i += kRows) {
      u32* acc[kRows];
      for (u32 r = 0; r < kRows; ++r) {
        const RowStart at = mfma_row<kM>(block, i + r);
        acc[r] = w.v[in.dst[0].index + at.reg] + at.lane;
      }
      rows_add<kM, kK, kRows>(acc, pa, pb, i);
    }
  }
}

u32 saturated(u32 c, u32 products) {
  const i64 sum = static_cast<i64>(static_cast<i32>(c)) + static_cast<i32>(products);
  return static_cast<u32>(std::max<i64>(INT32_MIN, std::min<i64>(INT32_MAX, sum)));
}
// neg_lo says whose bytes are signed. RDNA 3's operands are in each half of the wave, RDNA 4's in both.
void wmma_bytes(Wave& w, const Inst& in) {
  const bool split = in.aux & kSplit;
  if (!split) check_replication(w, in);
  alignas(64) u32 a[16][kLanes], b[16][kLanes], products[16][16];
  for (u32 e = 0; e < 4 * in.src[0].width; ++e) {
    bytes(w, in.src[0], e, in.src[0].flags & kNeg, a[e]);
    bytes(w, in.src[1], e, in.src[1].flags & kNeg, b[e]);
  }
  const u32 *pa[16], *pb[16], groups = w.n / 16;
  for (u32 k = 0; k < 16; ++k) {
    const RowStart at = split ? split_source<8>(k) : RowStart{k, 0};
    pa[k] = a[at.reg] + at.lane;
    pb[k] = b[at.reg] + at.lane;
  }
  std::memset(products, 0, sizeof products);
  for (u32 i = 0; i < 16; i += 4) {
    u32* rows[4] = {products[i], products[i + 1], products[i + 2], products[i + 3]};
    rows_add<16, 16, 4>(rows, pa, pb, i);
  }
  copy_accumulator(w, in, 16 / groups);
  for (u32 i = 0; i < 16; ++i) {
    const RowStart at = split ? split_row(i) : wmma_row(groups, i);
    u32* d = w.v[in.dst[0].index + at.reg] + at.lane;
    for (u32 j = 0; j < 16; ++j) d[j] = in.clamp ? saturated(d[j], products[i][j]) : d[j] + products[i][j];
  }
}
void bind_byte_wmma(Program& p, Inst& in, const std::string& text) {
  const bool split = splits(p);
  if (split) in.aux |= kSplit;
  const u8 width = split ? 2 : 4;
  if (in.src[0].width != width || in.src[1].width != width || in.src[2].flags & (kNeg | kNegHi) ||
      (in.src[0].flags | in.src[1].flags) & kNegHi)
    throw Error("this form of an integer WMMA is not implemented: " + text);
}

template <u32 kM, u32 kK, u32 kBlocks = 1>
void add_bytes(Ops& t, const char* name) {
  add_mfma<kM, kBlocks>(t, name, mfma_bytes<kM, kK, kBlocks>, Type::b32);
}
}  // namespace

void add_matrix_integers(Ops& t) {
  add_bytes<32, 8>(t, "v_mfma_i32_32x32x8i8");
  add_bytes<16, 16>(t, "v_mfma_i32_16x16x16i8");
  add_bytes<32, 4, 2>(t, "v_mfma_i32_32x32x4i8");
  add_bytes<16, 4, 4>(t, "v_mfma_i32_16x16x4i8");
  add_bytes<4, 4, 16>(t, "v_mfma_i32_4x4x4i8");
  add_bytes<32, 16>(t, "v_mfma_i32_32x32x16_i8");
  add_bytes<16, 32>(t, "v_mfma_i32_16x16x32_i8");
  add_bytes<32, 32>(t, "v_mfma_i32_32x32x32_i8");
  add_bytes<16, 64>(t, "v_mfma_i32_16x16x64_i8");
  t.alias("v_mfma_i32_32x32x4_2b_i8", "v_mfma_i32_32x32x4i8");
  t.alias("v_mfma_i32_16x16x4_4b_i8", "v_mfma_i32_16x16x4i8");
  t.alias("v_mfma_i32_4x4x4_16b_i8", "v_mfma_i32_4x4x4i8");
  t.add({"v_wmma_i32_16x16x16_iu8",
         wmma_bytes,
         Class::matrix,
         1,
         {Type::b32, Type::b32, Type::b32},
         kPacked | kIntClamp,
         bind_byte_wmma})
      .follows(wmma_flow);
}
}  // namespace emu
