// What a launch did, in words and as JSON.
#pragma once

#include <string>

#include "launch.hpp"

namespace standin {

// Why it stopped early and every finding, one a line; "" when all is well.
std::string problems_of(const emu::Launch& launch, const std::string& stopped);

// {"kernel", "arch", "grid", "block", "executed" (wave-instructions), "stopped", "findings": [text, ...]}
std::string record_of(const emu::Launch& launch, const std::string& arch, const std::string& stopped);

}  // namespace standin
