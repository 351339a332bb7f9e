// Reads clang's offload bundles: several archs' code objects in one block of memory.
#pragma once

#include <cstddef>
#include <string>

namespace fa {

struct Bytes {
  const unsigned char* data;
  std::size_t size;
};

// Throws FA_INTERNAL: the device code is damaged, and `how`.
[[noreturn]] void damaged(const std::string& how);

// The code object for `gfx` ("gfx942") in an uncompressed bundle, as a view into the bundle. Throws
// FA_INTERNAL if the bundle is damaged or lacks the code object.
Bytes find_code_object(Bytes bundle, const std::string& gfx);

}  // namespace fa
