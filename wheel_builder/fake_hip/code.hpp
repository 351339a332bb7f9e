// Code objects in memory and what the emulator needs to run them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "inst.hpp"

namespace fake_hip {

// Loads one raw ELF.  `image` has no size: it follows from the ELF header, as for AMD's runtime.  The
// disassembly is that of the file in `folder` with the very same bytes.  Throws Failure: hipErrorInvalidImage
// for anything that is not an AMDGPU ELF or cannot be run, hipErrorNoBinaryForGpu for an arch other than
// `device_arch` ("gfx942:sramecc+:xnack-").
std::unique_ptr<emu::Program> load_code(const void* image, const std::string& device_arch,
                                        const std::string& folder);

}  // namespace fake_hip
