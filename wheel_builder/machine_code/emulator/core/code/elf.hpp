// The parts of an AMDGPU ELF file needed to run a kernel.
#pragma once
#include "code/inst.hpp"

namespace emu {
void read_elf(const u8* data, size_t size, Program& program);  // gfx, kernels, symbols, image
}
