// MFMA and WMMA. Products and sums are f32 FMAs in ascending k. The hardware's intermediate rounding is
// unpublished. f16 and bf16 products are exact in f32. With `flushes_denormals`, denormals of A, B, C and D
// are zeros, unless A and B are f32. Layouts: ROCm matrix calculator, CDNA3 ISA 7.1.4, RDNA3 7.9, RDNA4 7.12.
#include "code/ops.hpp"
#include "instructions/math.hpp"
#include "run/launch.hpp"
#include "run/memory.hpp"

namespace emu {
namespace {
enum class El : u8 { f32_, f16_, bf16_, i8_ };

constexpr u32 per_dword(El t) { return t == El::f32_ ? 1 : t == El::i8_ ? 4 : 2; }

// Element e of every lane's operand registers, as floats.
void elements(const Wave& w, const Operand& o, El type, u32 e, f32* out) {
  alignas(64) u32 tmp[kLanes];
  u32 part = e % per_dword(type);
  const u32* p = read_raw(w, o, tmp, e / per_dword(type));
  switch (type) {
    case El::f32_: std::memcpy(out, p, w.n * 4); break;
    case El::f16_: halves_to_floats(p, out, static_cast<int>(w.n), part); break;
    case El::bf16_:
      lanes(w, [&](u32 i) { out[i] = bits<f32>(part ? p[i] & 0xffff0000u : p[i] << 16); });
      break;
    case El::i8_:
      lanes(w, [&](u32 i) { out[i] = static_cast<f32>(static_cast<i8>(p[i] >> (8 * part))); });
      break;
  }
}
bool flushes(const Wave& w, El type) {
  return type != El::f32_ && fa::traits(w.program->gfx).flushes_denormals;
}
void flush_elements(const Wave& w, El type, f32* x) {
  lanes(w, [&](u32 i) { x[i] = type == El::f16_ ? flush_half(x[i]) : flush(x[i]); });
}
// kRows rows of the result, from row i on: acc[r][j] += a * b[j] for each k in turn, fused. Several rows at
// once share the loads of b and hide the latency of the FMAs.
template <u32 kN, u32 kK, u32 kRows>
inline void rows_fma(f32* const* acc, const f32* const* a, const f32* const* b, u32 i) {
  if constexpr (kN >= 8) {
    constexpr u32 kVectors = kN / 8;
    __m256 sum[kRows][kVectors];
    for (u32 r = 0; r < kRows; ++r)
      for (u32 j = 0; j < kVectors; ++j) sum[r][j] = _mm256_loadu_ps(acc[r] + 8 * j);
    for (u32 k = 0; k < kK; ++k) {
      __m256 column[kVectors];
      for (u32 j = 0; j < kVectors; ++j) column[j] = _mm256_loadu_ps(b[k] + 8 * j);
      for (u32 r = 0; r < kRows; ++r) {
        __m256 x = _mm256_broadcast_ss(a[k] + i + r);
        for (u32 j = 0; j < kVectors; ++j) sum[r][j] = _mm256_fmadd_ps(x, column[j], sum[r][j]);
      }
    }
    for (u32 r = 0; r < kRows; ++r)
      for (u32 j = 0; j < kVectors; ++j) _mm256_storeu_ps(acc[r] + 8 * j, sum[r][j]);
  } else {
    for (u32 r = 0; r < kRows; ++r)
      for (u32 k = 0; k < kK; ++k)
        for (u32 j = 0; j < kN; ++j) acc[r][j] = __builtin_fmaf(a[k][i + r], b[k][j], acc[r][j]);
  }
}
constexpr u32 rows_at_once(u32 n) { return n == 32 ? 2 : 4; }

// Where a row of the result starts: its elements are in consecutive lanes of one register.
struct RowStart {
  u32 reg, lane;
};
template <u32 kM>
constexpr RowStart mfma_row(u32 block, u32 row) {
  if (kM == 4) return {row, block * 4};
  return {block * (kM * kM / 64) + row / (256 / kM) * 4 + row % 4, row / 4 % (64 / kM) * kM};
}
constexpr RowStart wmma_row(u32 groups, u32 row) { return {row / groups, row % groups * 16}; }
// On RDNA 4 each half of the wave holds half of the result's rows, in lanes of its own.
constexpr RowStart split_row(u32 row) { return {row % 8, row / 8 * 16}; }
bool is_split(const Inst& in) { return in.src[0].width == 4; }
constexpr u32 groups_of(u32 m, u32 blocks) { return 64 / m / blocks > 0 ? 64 / m / blocks : 1; }

// ---- undefined bits: one in a row of A taints this row of the result, one in a column of B this column.
u64 undefined_lanes(const Wave& s, const Operand& o) {
  alignas(64) u32 t[kLanes];
  u64 m = 0;
  for (u32 d = 0; d < o.width; ++d) {
    const u32* p = flow::undefined(s, o, t, d);
    for (u32 i = 0; i < s.n; ++i) m |= static_cast<u64>(p[i] != 0) << i;
  }
  return m;
}
// Rows (or columns) held by any of `groups` runs of m lanes, starting at lane `first`.
u32 fold(u64 lanes, u32 first, u32 m, u32 groups) {
  u32 rows = 0;
  for (u32 g = 0; g < groups; ++g) rows |= static_cast<u32>(lanes >> (first + g * m) & ((1ull << m) - 1));
  return rows;
}
void undefined_accumulator(Wave& s, const Inst& in) {
  alignas(64) u32 t[32][kLanes];
  const Operand& c = in.src[2];
  for (u32 r = 0; r < in.dst[0].width; ++r)
    std::memcpy(t[r], flow::undefined(s, c, t[r], c.kind == Kind::vgpr ? r : 0), sizeof t[r]);
  for (u32 r = 0; r < in.dst[0].width; ++r)
    lanes(s, [&](u32 i) { s.v[in.dst[0].index + r][i] = t[r][i] ? ~0u : 0; });
}
void undefined_row(Wave& s, const Inst& in, RowStart at, u32 m, bool row, u32 columns) {
  u32* out = s.v[in.dst[0].index + at.reg] + at.lane;
  for (u32 j = 0; j < m; ++j)
    if (row || columns >> j & 1) out[j] = ~0u;
}
template <u32 kM, u32 kBlocks>
void mfma_flow(Wave& s, const Inst& in) {
  constexpr u32 kGroups = groups_of(kM, kBlocks);
  const u64 a = undefined_lanes(s, in.src[0]), b = undefined_lanes(s, in.src[1]);
  undefined_accumulator(s, in);
  for (u32 block = 0; block < kBlocks; ++block) {
    const u32 first = block * kGroups * kM, rows = fold(a, first, kM, kGroups),
              columns = fold(b, first, kM, kGroups);
    for (u32 i = 0; i < kM; ++i) undefined_row(s, in, mfma_row<kM>(block, i), kM, rows >> i & 1, columns);
  }
}
void wmma_flow(Wave& s, const Inst& in) {
  const u32 groups = s.n / 16, rows = fold(undefined_lanes(s, in.src[0]), 0, 16, groups),
            columns = fold(undefined_lanes(s, in.src[1]), 0, 16, groups);
  undefined_accumulator(s, in);
  for (u32 i = 0; i < 16; ++i) {
    const RowStart at = is_split(in) ? split_row(i) : wmma_row(groups, i);
    undefined_row(s, in, at, 16, rows >> i & 1, columns);
  }
}

// The accumulator is copied to the destination, then updated in place.
void copy_accumulator(Wave& w, const Inst& in, u32 regs) {
  u32(*to)[kLanes] = w.v + in.dst[0].index;
  const Operand& c = in.src[2];
  if (c.kind == Kind::constant)
    for (u32 r = 0; r < regs; ++r) std::memcpy(to[r], c.lanes, sizeof to[r]);
  else if (c.index != in.dst[0].index)
    std::memmove(to, w.v + c.index, regs * sizeof to[0]);
}

// kM x kM x kK with kBlocks independent blocks on a wave of 64. Lane l holds row (A) or column (B) l % kM and
// kPer consecutive k of group l / kM; groups run over k first, then over blocks. So row k of a block's
// operand is a run of kM lanes of one element, and a row of the result a run of kM lanes of one register.
template <u32 kM, u32 kK, u32 kBlocks, El kType>
void mfma(Wave& w, const Inst& in) {
  constexpr u32 kGroups = groups_of(kM, kBlocks), kPer = kK / kGroups;
  constexpr u32 kRegs = kM * kM * kBlocks / 64, kRows = rows_at_once(kM);
  alignas(64) f32 a[kPer][kLanes], b[kPer][kLanes];
  const bool flushed = flushes(w, kType);
  for (u32 e = 0; e < kPer; ++e) {
    elements(w, in.src[0], kType, e, a[e]);
    elements(w, in.src[1], kType, e, b[e]);
    for (f32* each : {a[e], b[e]})
      if (flushed) flush_elements(w, kType, each);
  }
  copy_accumulator(w, in, kRegs);
  f32(*d)[kLanes] = reinterpret_cast<f32(*)[kLanes]>(w.v + in.dst[0].index);
  for (u32 r = 0; flushed && r < kRegs; ++r) flush_elements(w, El::f32_, d[r]);
  for (u32 block = 0; block < kBlocks; ++block) {
    const f32 *pa[kK], *pb[kK];
    for (u32 k = 0; k < kK; ++k) {
      u32 lane = (block * kGroups + k / kPer) * kM;
      pa[k] = a[k % kPer] + lane;
      pb[k] = b[k % kPer] + lane;
    }
    for (u32 i = 0; i < kM; i += kRows) {
      f32* acc[kRows];
      for (u32 r = 0; r < kRows; ++r) {
        const RowStart at = mfma_row<kM>(block, i + r);
        acc[r] = d[at.reg] + at.lane;
      }
      rows_fma<kM, kK, kRows>(acc, pa, pb, i);
    }
  }
  for (u32 r = 0; flushed && r < kRegs; ++r) flush_elements(w, El::f32_, d[r]);
}

// Lanes l and l+16 (and l+32, l+48 on wave64) must hold the same row of A and column of B.
void check_replication(Wave& w, const Inst& in) {
  for (u32 k = 0; k < 2; ++k)
    for (u32 r = 0; r < 8; ++r) {
      const u32* p = w.v[in.src[k].index + r];
      for (u32 l = 16; l < w.n; l += 16)
        if (std::memcmp(p + l, p, 64) != 0)
          found({w, in, l}, "wmma-operand", 0,
                "A or B differ between lane and lane - 16; they have to be replicated");
    }
}
template <El kType>
void wmma_elements(const u32 (*regs)[kLanes], f32 (*out)[16]) {
  for (u32 k = 0; k < 16; ++k)
    if (kType == El::f16_)
      halves_to_floats(regs[k / 2], out[k], 16, k % 2);
    else
      for (u32 i = 0; i < 16; ++i)
        out[k][i] = bits<f32>(k % 2 ? regs[k / 2][i] & 0xffff0000u : regs[k / 2][i] << 16);
}

// RDNA 4's 16x16x16 of a half type into f32, on a wave of 32: of each eight k, lanes 0 to 15 hold the first
// four.
template <El kType>
void wmma_split(Wave& w, const Inst& in) {
  alignas(64) f32 a[8][kLanes], b[8][kLanes];
  for (u32 e = 0; e < 8; ++e) {
    elements(w, in.src[0], kType, e, a[e]);
    elements(w, in.src[1], kType, e, b[e]);
  }
  const f32 *pa[16], *pb[16];
  for (u32 k = 0; k < 16; ++k) {
    const u32 e = k / 8 * 4 + k % 4, lane = k / 4 % 2 * 16;
    pa[k] = a[e] + lane;
    pb[k] = b[e] + lane;
  }
  copy_accumulator(w, in, 8);
  f32(*d)[kLanes] = reinterpret_cast<f32(*)[kLanes]>(w.v + in.dst[0].index);
  for (u32 i = 0; i < 16; i += 4) {
    f32* acc[4];
    for (u32 r = 0; r < 4; ++r) {
      const RowStart at = split_row(i + r);
      acc[r] = d[at.reg] + at.lane;
    }
    rows_fma<16, 16, 4>(acc, pa, pb, i);
  }
}

// 16x16x16 of a half type, into f32 or, one element per register, into the half type.
template <El kType, bool kHalfOut>
void wmma(Wave& w, const Inst& in) {
  if constexpr (!kHalfOut)
    if (is_split(in)) return wmma_split<kType>(w, in);
  alignas(64) f32 a[16][16], b[16][16], halves[8][kLanes];
  check_replication(w, in);
  wmma_elements<kType>(w.v + in.src[0].index, a);
  wmma_elements<kType>(w.v + in.src[1].index, b);
  const f32 *pa[16], *pb[16];
  for (u32 k = 0; k < 16; ++k) {
    pa[k] = a[k];
    pb[k] = b[k];
  }
  u32 groups = w.n / 16, regs = 16 / groups;
  bool high = in.op_sel_bits & 4;
  f32(*d)[kLanes] = kHalfOut ? halves : reinterpret_cast<f32(*)[kLanes]>(w.v + in.dst[0].index);
  if (!kHalfOut) copy_accumulator(w, in, regs);
  for (u32 r = 0; kHalfOut && r < regs; ++r) {
    bool constant = in.src[2].kind == Kind::constant, wide_constant = constant && kType == El::bf16_;
    const u32* c = constant ? in.src[2].lanes : w.v[in.src[2].index + r];
    lanes(w, [&](u32 l) {
      // A bf16 constant is the upper half of the f32 one.
      u32 h = c[l] >> (wide_constant || (high && !constant) ? 16 : 0) & 0xffffu;
      d[r][l] = kType == El::f16_ ? half_to_float(h) : bf16_to_float(h);
    });
  }
  for (u32 i = 0; i < 16; i += 4) {
    f32* acc[4];
    for (u32 r = 0; r < 4; ++r) {
      const RowStart at = wmma_row(groups, i + r);
      acc[r] = d[at.reg] + at.lane;
    }
    rows_fma<16, 16, 4>(acc, pa, pb, i);
  }
  for (u32 r = 0; kHalfOut && r < regs; ++r) {
    u32* out = w.v[in.dst[0].index + r];
    lanes(w, [&](u32 l) {
      u32 h = kType == El::f16_ ? float_to_half(d[r][l]) : float_to_bf16(d[r][l]);
      out[l] = high ? (out[l] & 0xffffu) | h << 16 : (out[l] & 0xffff0000u) | h;
    });
  }
}

bool contains_f32(const std::string& name) { return name.find("_f32_") != std::string::npos; }
void bind_wmma(Program&, Inst& in, const std::string& text) {
  for (u32 k = 0; k < in.nsrc; ++k)
    if (in.src[k].flags & (kNeg | kNegHi | kAbs))
      throw Error("WMMA with negated operands is not implemented: " + text);
  const bool half_out = !contains_f32(in.op->name);
  if (in.src[0].width != 8 && (!is_split(in) || half_out))
    throw Error("of RDNA 4's WMMA only sums in f32 on waves of 32 lanes are implemented: " + text);
}

template <u32 kM, u32 kK, u32 kBlocks, El kType>
void add(Ops& t, const char* name) {
  t.add({name, mfma<kM, kK, kBlocks, kType>, Class::matrix, 1, {Type::b32, Type::b32, Type::f32}, 0, nullptr})
      .follows(mfma_flow<kM, kBlocks>);
}
}  // namespace

void add_matrix(Ops& t) {
  add<32, 1, 2, El::f32_>(t, "v_mfma_f32_32x32x1f32");
  add<16, 1, 4, El::f32_>(t, "v_mfma_f32_16x16x1f32");
  add<4, 1, 16, El::f32_>(t, "v_mfma_f32_4x4x1f32");
  add<32, 2, 1, El::f32_>(t, "v_mfma_f32_32x32x2f32");
  add<16, 4, 1, El::f32_>(t, "v_mfma_f32_16x16x4f32");
  add<32, 4, 2, El::f16_>(t, "v_mfma_f32_32x32x4f16");
  add<16, 4, 4, El::f16_>(t, "v_mfma_f32_16x16x4f16");
  add<4, 4, 16, El::f16_>(t, "v_mfma_f32_4x4x4f16");
  add<32, 8, 1, El::f16_>(t, "v_mfma_f32_32x32x8f16");
  add<16, 16, 1, El::f16_>(t, "v_mfma_f32_16x16x16f16");
  add<32, 2, 2, El::bf16_>(t, "v_mfma_f32_32x32x2bf16");
  add<16, 2, 4, El::bf16_>(t, "v_mfma_f32_16x16x2bf16");
  add<4, 2, 16, El::bf16_>(t, "v_mfma_f32_4x4x2bf16");
  add<32, 4, 1, El::bf16_>(t, "v_mfma_f32_32x32x4bf16");
  add<16, 8, 1, El::bf16_>(t, "v_mfma_f32_16x16x8bf16");
  add<32, 4, 2, El::bf16_>(t, "v_mfma_f32_32x32x4bf16_1k");
  add<16, 4, 4, El::bf16_>(t, "v_mfma_f32_16x16x4bf16_1k");
  add<4, 4, 16, El::bf16_>(t, "v_mfma_f32_4x4x4bf16_1k");
  add<32, 8, 1, El::bf16_>(t, "v_mfma_f32_32x32x8bf16_1k");
  add<16, 16, 1, El::bf16_>(t, "v_mfma_f32_16x16x16bf16_1k");
  add<32, 16, 1, El::f16_>(t, "v_mfma_f32_32x32x16_f16");
  add<16, 32, 1, El::f16_>(t, "v_mfma_f32_16x16x32_f16");
  add<32, 16, 1, El::bf16_>(t, "v_mfma_f32_32x32x16_bf16");
  add<16, 32, 1, El::bf16_>(t, "v_mfma_f32_16x16x32_bf16");
  const char* renamed[][2] = {{"v_mfma_f32_32x32x1_2b_f32", "v_mfma_f32_32x32x1f32"},
                              {"v_mfma_f32_16x16x1_4b_f32", "v_mfma_f32_16x16x1f32"},
                              {"v_mfma_f32_4x4x1_16b_f32", "v_mfma_f32_4x4x1f32"},
                              {"v_mfma_f32_32x32x2_f32", "v_mfma_f32_32x32x2f32"},
                              {"v_mfma_f32_16x16x4_f32", "v_mfma_f32_16x16x4f32"},
                              {"v_mfma_f32_32x32x4_2b_f16", "v_mfma_f32_32x32x4f16"},
                              {"v_mfma_f32_16x16x4_4b_f16", "v_mfma_f32_16x16x4f16"},
                              {"v_mfma_f32_4x4x4_16b_f16", "v_mfma_f32_4x4x4f16"},
                              {"v_mfma_f32_32x32x8_f16", "v_mfma_f32_32x32x8f16"},
                              {"v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16f16"},
                              {"v_mfma_f32_32x32x4_2b_bf16", "v_mfma_f32_32x32x4bf16_1k"},
                              {"v_mfma_f32_16x16x4_4b_bf16", "v_mfma_f32_16x16x4bf16_1k"},
                              {"v_mfma_f32_4x4x4_16b_bf16", "v_mfma_f32_4x4x4bf16_1k"},
                              {"v_mfma_f32_32x32x8_bf16", "v_mfma_f32_32x32x8bf16_1k"},
                              {"v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x16bf16_1k"}};
  for (auto& r : renamed) t.alias(r[0], r[1]);
  auto wm = [&](const char* name, Handler h, Type c = Type::f32) {
    t.add({name, h, Class::matrix, 1, {Type::b32, Type::b32, c}, kOpSelBits, bind_wmma}).follows(wmma_flow);
  };
  wm("v_wmma_f32_16x16x16_f16", wmma<El::f16_, false>);
  wm("v_wmma_f32_16x16x16_bf16", wmma<El::bf16_, false>);
  wm("v_wmma_f16_16x16x16_f16", wmma<El::f16_, true>, Type::f16);
  wm("v_wmma_bf16_16x16x16_bf16", wmma<El::bf16_, true>);
}
}  // namespace emu
