// The effects of a launch, in words and as JSON.
#pragma once

#include <string>

#include "code/inst.hpp"
#include "run/launch.hpp"

namespace fake_hip {

// The reason of an early stop and every finding, one per line, or "".
std::string problems_of(const emu::Launch& launch, const std::string& stopped);

// {"kernel", "arch", "grid", "block", "executed" (wave-instructions), "ran" (one hexadecimal digit for every
// four instructions of the kernel, the first in its lowest bit), "stopped", "findings": [text, ...]}
std::string record_of(const emu::Launch& launch, const std::string& arch, const std::string& stopped);

// [{"offset" (bytes from the kernel's entry), "text"}, ...], in the order of the bits of "ran".
std::string listing_of(const emu::Program& program, const emu::KernelInfo& kernel);

}  // namespace fake_hip
