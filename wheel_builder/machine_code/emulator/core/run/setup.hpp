// Initial state of a workgroup's waves, as the command processor would leave it.
#pragma once
#include "run/launch.hpp"

namespace emu {
// Throws Error with all problems of the launch's sizes.
void check_launch(const Launch& launch);
// Checks the launch. Makes kernarg with hidden arguments, dispatch packet, image.
void prepare_launch(Launch& launch);
void start_group(Group& group, u64 seed);
}  // namespace emu
