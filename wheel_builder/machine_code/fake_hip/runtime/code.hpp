// Code objects in memory, prepared for the emulator.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "code/inst.hpp"

namespace fake_hip {

// Loads one raw ELF. The size of `image` follows from the ELF header, as for AMD's runtime. The disassembly
// is that of the file in `folder` with the same bytes. The GPU's name may differ if the device runs another
// one's machine code. Throws Failure: hipErrorInvalidImage for anything other than an executable AMDGPU ELF,
// hipErrorNoBinaryForGpu unless header and metadata name `device_arch` ("gfx942:sramecc+:xnack-").
std::unique_ptr<emu::Program> load_code(const void* image, const std::string& device_arch,
                                        const std::string& folder);

}  // namespace fake_hip
