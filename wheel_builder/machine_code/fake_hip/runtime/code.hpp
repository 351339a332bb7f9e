// Code objects in memory and what the emulator needs to run them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "code/inst.hpp"

namespace fake_hip {

// Loads one raw ELF.  `image` has no size: it follows from the ELF header, as for AMD's runtime.  The
// disassembly is that of the file in `folder` with the very same bytes, the GPU's name apart where the device
// runs another one's machine code.  Throws Failure: hipErrorInvalidImage for anything that is not an AMDGPU
// ELF or cannot be run, hipErrorNoBinaryForGpu unless header and metadata name `device_arch`
// ("gfx942:sramecc+:xnack-").
std::unique_ptr<emu::Program> load_code(const void* image, const std::string& device_arch,
                                        const std::string& folder);

}  // namespace fake_hip
