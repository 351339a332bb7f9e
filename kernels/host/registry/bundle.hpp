// Reads clang's offload bundles: code objects in one block of memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fa {

inline constexpr std::size_t kBundleAlignment = 4096;

struct Bytes {
  const unsigned char* data;
  std::size_t size;
};

// Throws FA_INTERNAL: the device code is damaged, and `how`.
[[noreturn]] void damaged(const std::string& how);

// The code objects for `gfx` ("gfx942") in a row of uncompressed bundles, one in each, as views. A bundle
// begins at a multiple of kBundleAlignment. Throws FA_INTERNAL if a bundle is damaged or lacks its code
// object.
std::vector<Bytes> find_code_objects(Bytes bundles, const std::string& gfx);

}  // namespace fa
