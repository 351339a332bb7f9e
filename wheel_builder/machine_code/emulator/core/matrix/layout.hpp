// Layouts of matrix instructions and the flow of undefined bits through them. Sources: ROCm matrix
// calculator, CDNA3 ISA 7.1.4, CDNA4 ISA 7.1.5, RDNA3 7.9, RDNA4 7.12.
#pragma once
#include <cstring>

#include "code/ops.hpp"
#include "run/launch.hpp"
#include "run/memory.hpp"

namespace emu {
// `aux` of a WMMA: RDNA 4's form.
constexpr u32 kSplit = 1;
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
constexpr u32 groups_of(u32 m, u32 blocks) { return 64 / m / blocks > 0 ? 64 / m / blocks : 1; }

// ---- undefined bits: one in a row of A taints this row of the result, one in a column of B this column.
inline u64 undefined_lanes(const Wave& s, const Operand& o, u32 bits_read = ~0u) {
  alignas(64) u32 t[kLanes];
  u64 m = 0;
  for (u32 d = 0; d < o.width; ++d) {
    const u32* p = flow::undefined(s, o, t, d);
    for (u32 i = 0; i < s.n; ++i) m |= static_cast<u64>((p[i] & bits_read) != 0) << i;
  }
  return m;
}
// Rows (or columns) held by any of `groups` runs of m lanes, starting at lane `first`.
inline u32 fold(u64 lanes, u32 first, u32 m, u32 groups) {
  u32 rows = 0;
  for (u32 g = 0; g < groups; ++g) rows |= static_cast<u32>(lanes >> (first + g * m) & ((1ull << m) - 1));
  return rows;
}
inline void undefined_accumulator(Wave& s, const Inst& in) {
  alignas(64) u32 t[32][kLanes];
  const Operand& c = in.src[2];
  for (u32 r = 0; r < in.dst[0].width; ++r)
    std::memcpy(t[r], flow::undefined(s, c, t[r], c.kind == Kind::vgpr ? r : 0), sizeof t[r]);
  for (u32 r = 0; r < in.dst[0].width; ++r)
    lanes(s, [&](u32 i) { s.v[in.dst[0].index + r][i] = t[r][i] ? ~0u : 0; });
}
inline void undefined_row(Wave& s, const Inst& in, RowStart at, u32 m, bool row, u32 columns) {
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
inline void wmma_flow(Wave& s, const Inst& in) {
  const u32 groups = s.n / 16, rows = fold(undefined_lanes(s, in.src[0]), 0, 16, groups),
            columns = fold(undefined_lanes(s, in.src[1]), 0, 16, groups);
  undefined_accumulator(s, in);
  for (u32 i = 0; i < 16; ++i) {
    const RowStart at = in.aux & kSplit ? split_row(i) : wmma_row(groups, i);
    undefined_row(s, in, at, 16, rows >> i & 1, columns);
  }
}

// The accumulator is copied to the destination, then updated in place.
inline void copy_accumulator(Wave& w, const Inst& in, u32 regs) {
  u32(*to)[kLanes] = w.v + in.dst[0].index;
  const Operand& c = in.src[2];
  if (c.kind == Kind::constant)
    for (u32 r = 0; r < regs; ++r) std::memcpy(to[r], c.lanes, sizeof to[r]);
  else if (c.index != in.dst[0].index)
    std::memmove(to, w.v + c.index, regs * sizeof to[0]);
}

// Lanes l and l+16 (and l+32, l+48 on wave64) must hold the same row of A and column of B.
inline void check_replication(Wave& w, const Inst& in) {
  for (u32 k = 0; k < 2; ++k)
    for (u32 r = 0; r < in.src[k].width; ++r) {
      const u32* p = w.v[in.src[k].index + r];
      for (u32 l = 16; l < w.n; l += 16)
        if (std::memcmp(p + l, p, 64) != 0)
          found({w, in, l}, "wmma-operand", 0,
                "A or B differ between lane and lane - 16; they have to be replicated");
    }
}
inline bool splits(const Program& p) { return fa::traits(p.gfx).unit == fa::MatrixUnit::wmma_split; }
// In RDNA 4's form, element and first lane of row k of an operand: each half of the wave holds 64 bits of a
// row in turn.
template <u32 kBits>
constexpr RowStart split_source(u32 k) {
  constexpr u32 kRun = 64 / kBits;
  return {k / (2 * kRun) * kRun + k % kRun, k / kRun % 2 * 16};
}

template <u32 kM, u32 kBlocks>
void add_mfma(Ops& t, const char* name, Handler h, Type c) {
  t.add({name, h, Class::matrix, 1, {Type::b32, Type::b32, c}, 0, nullptr}).follows(mfma_flow<kM, kBlocks>);
}
void add_matrix_integers(Ops&);
}  // namespace emu
