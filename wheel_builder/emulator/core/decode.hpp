// Text of llvm-objdump to decoded instructions.
#pragma once
#include "inst.hpp"
#include "ops.hpp"

namespace emu {
void decode(const std::string& disassembly, Program& program);  // fills code, lines, at, missing

// Wrappers that the decoder puts around a handler.
void run_dpp(Wave&, const Inst&);
void run_sdwa(Wave&, const Inst&);
void run_dual(Wave&, const Inst&);
void run_missing(Wave&, const Inst&);
const Ops& ops();
}  // namespace emu
