// From llvm-objdump's text to decoded instructions.
#pragma once
#include "code/inst.hpp"
#include "code/ops.hpp"

namespace emu {
void decode(const std::string& disassembly, Program& program);  // fills code, lines, at, missing

// Wrappers put around a handler by the decoder.
void run_dpp(Wave&, const Inst&);
void run_sdwa(Wave&, const Inst&);
void run_dual(Wave&, const Inst&);
void run_missing(Wave&, const Inst&);

// Vector operands with their register offset by M0[7:0]. On gfx9 M0[15:12] selects them while MODE.gpr_idx_en
// is set. v_movrel* (gfx10+) has its own, in the upper bits of Inst::aux.
constexpr u32 kGprIndexed = 1u << 27, kMovrel = 1u << 31;
constexpr int kMovrelShift = 24;
enum Moved : u32 { kMovesSrc0 = 1, kMovesSrc1 = 2, kMovesSrc2 = 4, kMovesDst = 8 };
// The instruction with its registers offset.
Inst indexed(Wave&, const Inst&);
const Ops& ops();
}  // namespace emu
