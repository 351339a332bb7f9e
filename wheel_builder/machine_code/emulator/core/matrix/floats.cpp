// MFMA and WMMA of floats. Products and sums are f32 FMAs in ascending k. The hardware's intermediate
// rounding is unpublished. Products of 16 and 8 bits are exact in f32. With `flushes_denormals`, denormals of
// A, B, C and D are zeros, unless A and B are f32. Those of 8 bits are kept everywhere.
#include "instructions/math.hpp"
#include "matrix/layout.hpp"
#include "narrow/formats.hpp"

namespace emu {
namespace {
enum class El : u8 { f32_, f16_, bf16_, fp8_, bf8_ };

constexpr u32 per_dword(El t) { return t == El::f32_ ? 1 : t == El::fp8_ || t == El::bf8_ ? 4 : 2; }

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
    case El::fp8_:
    case El::bf8_: {
      const Small which = type == El::fp8_ ? Small::fp8_ : Small::bf8_;
      const f32* table = small_table(fa::traits(w.program->gfx).fp8, which).data();
      lanes(w, [&](u32 i) { out[i] = table[p[i] >> 8 * part & 0xff]; });
      break;
    }
  }
}
bool flushes(const Wave& w, El type) {
  return type != El::f32_ && fa::traits(w.program->gfx).flushes_denormals;
}
void flush_elements(const Wave& w, El type, f32* x) {
  lanes(w, [&](u32 i) { x[i] = type == El::f16_ ? flush_half(x[i]) : flush(x[i]); });
}
// CDNA 4's manual has FP16_OVFL clamp products of 8 bits, without telling how.
void refuse_clamped(const Wave& w, const Inst& in, u32 regs) {
  if (!w.saturates) return;
  for (u32 r = 0; r < regs; ++r)
    for (u32 i = 0; i < w.n; ++i)
      if ((w.v[in.dst[0].index + r][i] & 0x7fffffffu) == 0x7f800000u)
        fail(w, in, "an infinite result under FP16_OVFL is not implemented; it may be clamped");
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
// kM x kM x kK with kBlocks independent blocks on a wave of 64. Lane l holds row (A) or column (B) l % kM and
// kPer consecutive k of group l / kM; groups run over k first, then over blocks. So row k of a block's
// operand is a run of kM lanes of one element, and a row of the result a run of kM lanes of one register.
template <u32 kM, u32 kK, u32 kBlocks, El kA, El kB = kA>
void mfma(Wave& w, const Inst& in) {
  constexpr u32 kGroups = groups_of(kM, kBlocks), kPer = kK / kGroups;
  constexpr u32 kRegs = kM * kM * kBlocks / 64, kRows = rows_at_once(kM);
  alignas(64) f32 a[kPer][kLanes], b[kPer][kLanes];
  const bool flushed = flushes(w, kA);
  for (u32 e = 0; e < kPer; ++e) {
    elements(w, in.src[0], kA, e, a[e]);
    elements(w, in.src[1], kB, e, b[e]);
    for (f32* each : {a[e], b[e]})
      if (flushed) flush_elements(w, kA, each);
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
  refuse_clamped(w, in, kRegs);
}

// CDNA 4's products of up to 8 bits. Lane l holds of row (A) or column (B) l % kM the k 16 * (l / kM) + e of
// the first half, then of the second one. A scale is that of 32 consecutive k: lane l has those of block
// l / kM. It is a power of two, and the product with it stays exact within a range that is checked.
constexpr u32 kScaleRange = 64, kScaleOne = 127;
constexpr El kFormat[] = {El::fp8_, El::bf8_};
template <u32 kM>
struct Wide {
  static constexpr u32 kK = 2048 / kM, kGroups = 64 / kM;
  static constexpr u32 k(u32 lane, u32 e) { return e / 16 * (kK / 2) + lane / kM * 16 + e % 16; }
  static constexpr RowStart source(u32 k) { return {k / (kK / 2) * 16 + k % 16, k % (kK / 2) / 16 * kM}; }
};
u32 scale_byte(const Inst& in, u32 operand) {
  return (in.op_sel_bits >> operand & 1) + 2 * (in.aux >> (kHighSelected + operand) & 1);
}
template <u32 kM>
void scale(const Wave& w, const Inst& in, u32 operand, f32 (*x)[kLanes]) {
  alignas(64) u32 t[kLanes];
  f32 factor[kLanes];
  const u32* p = read_raw(w, in.src[3 + operand], t);
  for (u32 i = 0; i < kLanes; ++i) {
    const u32 exponent = p[i] >> 8 * scale_byte(in, operand) & 0xff;
    if (exponent - (kScaleOne - kScaleRange) > 2 * kScaleRange)
      fail(w, in,
           "the scale 2^" + std::to_string(static_cast<i32>(exponent) - static_cast<i32>(kScaleOne)) +
               " is not implemented; those from 2^-64 to 2^64 are");
    factor[i] = bits<f32>(exponent << 23);
  }
  for (u32 e = 0; e < 32; ++e)
    for (u32 i = 0; i < kLanes; ++i) x[e][i] *= factor[i % kM + Wide<kM>::k(i, e) / 32 * kM];
}
template <u32 kM>
void mfma_wide(Wave& w, const Inst& in) {
  constexpr u32 kK = Wide<kM>::kK, kRegs = kM * kM / 64, kRows = rows_at_once(kM);
  alignas(64) f32 a[32][kLanes], b[32][kLanes];
  for (u32 e = 0; e < 32; ++e) {
    elements(w, in.src[0], kFormat[in.aux & 7], e, a[e]);
    elements(w, in.src[1], kFormat[in.aux >> kFormatOfB & 7], e, b[e]);
  }
  if (in.nsrc == 5) {
    scale<kM>(w, in, 0, a);
    scale<kM>(w, in, 1, b);
  }
  copy_accumulator(w, in, kRegs);
  f32(*d)[kLanes] = reinterpret_cast<f32(*)[kLanes]>(w.v + in.dst[0].index);
  const f32 *pa[kK], *pb[kK];
  for (u32 k = 0; k < kK; ++k) {
    const RowStart at = Wide<kM>::source(k);
    pa[k] = a[at.reg] + at.lane;
    pb[k] = b[at.reg] + at.lane;
  }
  for (u32 i = 0; i < kM; i += kRows) {
    f32* acc[kRows];
    for (u32 r = 0; r < kRows; ++r) {
      const RowStart at = mfma_row<kM>(0, i + r);
      acc[r] = d[at.reg] + at.lane;
    }
    rows_fma<kM, kK, kRows>(acc, pa, pb, i);
  }
  refuse_clamped(w, in, kRegs);
}
// A row's undefined scale leaves the row undefined.
template <u32 kM>
void wide_flow(Wave& s, const Inst& in) {
  u64 open[2];
  for (u32 k = 0; k < 2; ++k) {
    open[k] = undefined_lanes(s, in.src[k]);
    if (in.nsrc == 5) open[k] |= undefined_lanes(s, in.src[3 + k], 0xffu << 8 * scale_byte(in, k));
  }
  const u32 rows = fold(open[0], 0, kM, 64 / kM), columns = fold(open[1], 0, kM, 64 / kM);
  undefined_accumulator(s, in);
  for (u32 i = 0; i < kM; ++i) undefined_row(s, in, mfma_row<kM>(0, i), kM, rows >> i & 1, columns);
}
void bind_wide(Program&, Inst& in, const std::string& text) {
  if ((in.aux & 7) > 1 || (in.aux >> kFormatOfB & 7) > 1)
    throw Error("FP6, BF6 and FP4 operands (cbsz or blgp above 1) are not implemented: " + text);
  for (u32 k = 0; k < in.nsrc; ++k) {
    if (in.src[k].flags & (kNeg | kAbs))
      throw Error("MFMA with negated operands is not implemented: " + text);
    if (k > 2 && in.src[k].kind != Kind::vgpr)
      throw Error("a scale that is no VGPR is not implemented: " + text);
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

// RDNA 4's 16x16x16 into f32, on a wave of 32.
template <El kA, El kB>
void wmma_split(Wave& w, const Inst& in) {
  alignas(64) f32 a[8][kLanes], b[8][kLanes];
  for (u32 e = 0; e < 8; ++e) {
    elements(w, in.src[0], kA, e, a[e]);
    elements(w, in.src[1], kB, e, b[e]);
  }
  const f32 *pa[16], *pb[16];
  for (u32 k = 0; k < 16; ++k) {
    const RowStart at = split_source<32 / per_dword(kA)>(k);
    pa[k] = a[at.reg] + at.lane;
    pb[k] = b[at.reg] + at.lane;
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
  refuse_clamped(w, in, 8);
}

// 16x16x16 of a half type, into f32 or, one element per register, into the half type.
template <El kType, bool kHalfOut>
void wmma(Wave& w, const Inst& in) {
  if constexpr (!kHalfOut)
    if (in.aux & kSplit) return wmma_split<kType, kType>(w, in);
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
  if (!kHalfOut) refuse_clamped(w, in, regs);
  for (u32 r = 0; kHalfOut && r < regs; ++r) {
    u32* out = w.v[in.dst[0].index + r];
    lanes(w, [&](u32 l) {
      u32 h = kType == El::f16_ ? float_to_half(d[r][l]) : float_to_bf16(d[r][l]);
      out[l] = high ? (out[l] & 0xffffu) | h << 16 : (out[l] & 0xffff0000u) | h;
    });
  }
}

u32 bits_of(const std::string& name) { return name.back() == '8' ? 8 : 16; }
bool contains_f32(const std::string& name) { return name.find("_f32_") != std::string::npos; }
void bind_wmma(Program& p, Inst& in, const std::string& text) {
  for (u32 k = 0; k < in.nsrc; ++k)
    if (in.src[k].flags & (kNeg | kNegHi | kAbs))
      throw Error("WMMA with negated operands is not implemented: " + text);
  const bool half_out = !contains_f32(in.op->name), split = splits(p);
  if (split) in.aux |= kSplit;
  if (split && (half_out || in.src[0].width * 32 != 8 * bits_of(in.op->name)))
    throw Error("of RDNA 4's WMMA only sums in f32 on waves of 32 lanes are implemented: " + text);
}

template <u32 kM, u32 kK, u32 kBlocks, El kA, El kB = kA>
void add(Ops& t, const char* name) {
  add_mfma<kM, kBlocks>(t, name, mfma<kM, kK, kBlocks, kA, kB>, Type::f32);
}
template <u32 kM>
void add_wide(Ops& t, const char* name) {
  t.add({name, mfma_wide<kM>, Class::matrix, 1, {Type::b32, Type::b32, Type::f32}, kFormats, bind_wide})
      .follows(wide_flow<kM>);
}
}  // namespace

void add_matrix(Ops& t) {
  add_matrix_integers(t);
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
  add<32, 16, 1, El::fp8_, El::fp8_>(t, "v_mfma_f32_32x32x16_fp8_fp8");
  add<32, 16, 1, El::fp8_, El::bf8_>(t, "v_mfma_f32_32x32x16_fp8_bf8");
  add<32, 16, 1, El::bf8_, El::fp8_>(t, "v_mfma_f32_32x32x16_bf8_fp8");
  add<32, 16, 1, El::bf8_, El::bf8_>(t, "v_mfma_f32_32x32x16_bf8_bf8");
  add<16, 32, 1, El::fp8_, El::fp8_>(t, "v_mfma_f32_16x16x32_fp8_fp8");
  add<16, 32, 1, El::fp8_, El::bf8_>(t, "v_mfma_f32_16x16x32_fp8_bf8");
  add<16, 32, 1, El::bf8_, El::fp8_>(t, "v_mfma_f32_16x16x32_bf8_fp8");
  add<16, 32, 1, El::bf8_, El::bf8_>(t, "v_mfma_f32_16x16x32_bf8_bf8");
  add_wide<32>(t, "v_mfma_f32_32x32x64_f8f6f4");
  add_wide<16>(t, "v_mfma_f32_16x16x128_f8f6f4");
  add_wide<32>(t, "v_mfma_scale_f32_32x32x64_f8f6f4");
  add_wide<16>(t, "v_mfma_scale_f32_16x16x128_f8f6f4");
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
    const u32 unsure = contains_f32(name) ? 0 : kNotSaturated;
    t.add({name, h, Class::matrix, 1, {Type::b32, Type::b32, c}, kOpSelBits | unsure, bind_wmma})
        .follows(wmma_flow);
  };
  wm("v_wmma_f32_16x16x16_f16", wmma<El::f16_, false>);
  wm("v_wmma_f32_16x16x16_bf16", wmma<El::bf16_, false>);
  wm("v_wmma_f16_16x16x16_f16", wmma<El::f16_, true>, Type::f16);
  wm("v_wmma_bf16_16x16x16_bf16", wmma<El::bf16_, true>);
  wm("v_wmma_f32_16x16x16_fp8_fp8", wmma_split<El::fp8_, El::fp8_>);
  wm("v_wmma_f32_16x16x16_fp8_bf8", wmma_split<El::fp8_, El::bf8_>);
  wm("v_wmma_f32_16x16x16_bf8_fp8", wmma_split<El::bf8_, El::fp8_>);
  wm("v_wmma_f32_16x16x16_bf8_bf8", wmma_split<El::bf8_, El::bf8_>);
}
}  // namespace emu
