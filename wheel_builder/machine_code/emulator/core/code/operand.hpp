// Operands of the disassembler's text: registers, constants, their modifiers.
#pragma once
#include <string>

#include "code/inst.hpp"

namespace emu {
// One operand of `in`; constants are spelled out in the bits of `type`. Throws Error for unknown operands.
Operand parse_operand(Program& program, const Inst& in, std::string text, Type type);
// Makes the operand a constant of these bits.
void set_constant(Program& program, Operand& operand, u64 value);
}  // namespace emu
