// Propagation of undefined bits from an operation's sources to its result. A flow is stored in the table with
// the operation's semantics (OpInfo::flow). It runs on the wave's shadow before the operation itself: `s`
// holds a 1 for every undefined bit, `s.real` the values.
#pragma once
#include "run/wave.hpp"

namespace emu::flow {
// ---- vector operations
void any(Wave& s, const Inst& in);           // the lane's whole result, if any source bit is undefined
void cvt_pair(Wave& s, const Inst& in);      // any, where each source becomes one half of the result
void packed(Wave& s, const Inst& in);        // any, for each 16-bit half
void packed_f32(Wave& s, const Inst& in);    // any, for each dword of two
void choose(Wave& s, const Inst& in);        // cndmask
void byte_permute(Wave& s, const Inst& in);  // v_perm_b32
void compare(Wave& s, const Inst& in);       // any, into a bit of a lane mask
void compare_exec(Wave& s, const Inst& in);  // the same for v_cmpx, which also decides EXEC

void move_bits(Wave& s, const Inst& in, u32 data);
// Bits are only moved: the operation itself, run on the undefined bits, moves them too. kData: mask of the
// moved sources. The others control the move and keep their values.
template <u32 kData = 1>
void moves(Wave& s, const Inst& in) {
  move_bits(s, in, kData);
}

constexpr u32 kNoShift = 99;
void sum(Wave& s, const Inst& in, u32 shift, u32 factor_bits);
// Sums and products: undefined from the lowest undefined bit of a source upwards. kShift: the source used to
// shift the sum of the preceding ones left. kFactorBits: relevant bits of the first two sources.
template <u32 kShift = kNoShift, u32 kFactorBits = 32>
void carry(Wave& s, const Inst& in) {
  sum(s, in, kShift, kFactorBits);
}

// For a bitwise f: the bits whose result depends on the undefined ones.
template <class T, class F>
T varies(F f, const T (&value)[3], const T (&open)[3]) {
  const T given = f(value[0], value[1], value[2]);
  T out = 0;
  for (u32 flips = 1; flips < 8; ++flips)
    out |= given ^ f(value[0] ^ (flips & 1 ? open[0] : 0), value[1] ^ (flips & 2 ? open[1] : 0),
                     value[2] ^ (flips & 4 ? open[2] : 0));
  return out;
}

// The lanes of up to three sources of a bitwise operation. 16-bit sources are in the low half.
struct BitSources {
  alignas(64) u32 value[3][kLanes], open[3][kLanes];
  bool known;  // values are, unless DPP or SDWA have changed them
  BitSources(const Wave& s, const Inst& in);
};
void give_bits(Wave& s, const Inst& in, const u32* open);
template <class F>
void bitwise(Wave& s, const Inst& in, F f) {
  const BitSources x(s, in);
  alignas(64) u32 out[kLanes];
  lanes(s, [&](u32 i) {
    const u32 open[3] = {x.open[0][i], x.open[1][i], x.open[2][i]};
    const u32 value[3] = {x.value[0][i], x.value[1][i], x.value[2][i]};
    out[i] = x.known ? varies<u32>(f, value, open) : open[0] | open[1] | open[2];
  });
  give_bits(s, in, out);
}

// ---- scalar operations. SCC is handled as the operation's flags say.
u64 scalar_undefined(const Wave& s, const Operand& o);
void give_scalar(Wave& s, const Inst& in, u64 open);
void scalar(Wave& s, const Inst& in);  // the whole result, if any source bit is undefined
void select(Wave& s, const Inst& in);  // s_cselect
void scalar_move_bits(Wave& s, const Inst& in, u32 data);
template <u32 kData = 1>
void scalar_moves(Wave& s, const Inst& in) {
  scalar_move_bits(s, in, kData);
}
template <class F>
void scalar_bitwise(Wave& s, const Inst& in, F f) {
  const u64 value[3] = {read_scalar(*s.real, in.src[0]), read_scalar(*s.real, in.src[1]), 0};
  const u64 open[3] = {scalar_undefined(s, in.src[0]), scalar_undefined(s, in.src[1]), 0};
  give_scalar(s, in, varies<u64>([&](u64 a, u64 b, u64) { return f(a, b); }, value, open));
}

// ---- decisions forbidden to undefined bits
void undefined_exec(Wave& s, const Inst& in, u64 lanes);
// EXEC = f(source, EXEC), bit by bit.
template <class F>
void set_exec(Wave& s, const Inst& in, F f) {
  const u64 e = s.real->exec, counts = f(u64{0}, e) ^ f(~u64{0}, e);
  if (const u64 m = scalar_undefined(s, in.src[0]) & counts & s.all) undefined_exec(s, in, m);
  give_scalar(s, in, 0);
}
void branch_scc(Wave& s, const Inst& in);
void branch_vcc(Wave& s, const Inst& in);
void jump(Wave& s, const Inst& in);
void check_address(Wave& s, const Inst& in, u32 first, u32 last, u32 data);
// Memory instructions: their loads and stores move the undefined bits. This checks the address: all sources
// but the data.
constexpr u32 kNoData = 99;
template <u32 kData = kNoData>
void address(Wave& s, const Inst& in) {
  check_address(s, in, 0, in.nsrc, kData);
}
void lds_address(Wave& s, const Inst& in);  // the first source

void defined(Wave& s, const Inst& in);  // marks the result, if any, as defined

// The undefined bits of a source's dword, by lane. Constants are defined.
const u32* undefined(const Wave& s, const Operand& o, u32* tmp, u32 dword = 0);
}  // namespace emu::flow
