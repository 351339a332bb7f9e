// Undefined bits: register bits without a computed value. As with memcheck for host programs, they may be
// moved, stored in LDS and scratch, and computed with. It is an error if they decide an address, EXEC or a
// branch, or are stored to global memory. Each wave has a shadow wave with a 1 in its registers for every
// undefined bit.
#pragma once
#include "run/launch.hpp"

namespace emu {
void start_shadow(Wave& w, u32 sgprs);        // all registers are undefined, except those set by the launch
void shadow_step(Wave& w, const Inst& in);    // before the instruction runs
void shadow_result(Wave& w, const Inst& in);  // after it has run
}  // namespace emu
