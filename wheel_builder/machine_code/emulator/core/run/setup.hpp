// Initial state of a workgroup's waves, as the command processor would leave it.
#pragma once
#include "run/launch.hpp"

namespace emu {
// Throws Error with all problems of the launch's sizes.
void check_launch(const Launch& launch);
// Checks the launch. Makes kernarg with hidden arguments, dispatch packet, image.
void prepare_launch(Launch& launch);
void start_group(Group& group, u64 seed);
// An instruction of the kernel whose result under FP16_OVFL is not implemented, or null.
const Inst* not_saturated(const Program& program, const KernelInfo& kernel);
}  // namespace emu
