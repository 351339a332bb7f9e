// What a launch did, in words and as JSON.
#pragma once

#include <string>

#include "code/inst.hpp"
#include "run/launch.hpp"

namespace fake_hip {

// Why it stopped early and every finding, one per line; "" when nothing is wrong.
std::string problems_of(const emu::Launch& launch, const std::string& stopped);

// {"kernel", "arch", "grid", "block", "executed" (wave-instructions), "ran" (one hexadecimal digit for every
// four instructions of the kernel, the first in its lowest bit), "stopped", "findings": [text, ...]}
std::string record_of(const emu::Launch& launch, const std::string& arch, const std::string& stopped);

// [{"offset" (bytes from the kernel's entry), "text"}, ...], in the order of the bits of "ran".
std::string listing_of(const emu::Program& program, const emu::KernelInfo& kernel);

}  // namespace fake_hip
