// Renames code objects for another GPU that runs the same machine code.
#pragma once

#include <vector>

#include "device/arch/names.hpp"
#include "host/registry/bundle.hpp"

namespace fa {

// The code object of `gpu.code_object`, as a compiler would write it for `gpu`. A loader accepts a code
// object only for the GPU it names, in two places: e_flags of the ELF header, and the target of the metadata.
// Both names have the same length (wheel_builder/tables/archs.py), so nothing moves. Throws FA_INTERNAL
// unless `code` names its own arch in exactly these places.
std::vector<unsigned char> relabelled(Bytes code, const Gpu& gpu);

}  // namespace fa
