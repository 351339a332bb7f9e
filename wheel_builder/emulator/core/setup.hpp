// Initial state of a workgroup's waves, as the command processor would leave it.
#pragma once
#include "launch.hpp"

namespace emu {
void prepare_launch(
    Launch& launch);  // kernarg with hidden arguments, dispatch packet, image; checks the launch
void start_group(Group& group, u64 seed);
}  // namespace emu
