// Undefined bits: which bits of registers nothing has computed. As memcheck does for host programs, they may
// be moved, stored in LDS and scratch and computed with; it is an error to let them decide: as an address, in
// EXEC, in a branch, or as data of a store to global memory. Each wave has a second wave whose registers
// hold, for every bit, whether it is undefined.
#pragma once
#include "launch.hpp"

namespace emu {
void prepare_shadow(const Program& program);  // once for each program
void start_shadow(Wave& w, u32 sgprs);        // registers are undefined, but those that the launch sets
void shadow_step(Wave& w, const Inst& in);    // before the instruction runs
void shadow_result(Wave& w, const Inst& in);  // after it has run
}  // namespace emu
