// Unpacks an arch's compressed device code.
#pragma once

#include <memory>
#include <new>
#include <vector>

#include "host/registry/bundle.hpp"

namespace fa {

struct FreedPages {
  void operator()(unsigned char* memory) const {
    ::operator delete[](memory, std::align_val_t{kBundleAlignment});
  }
};

// Memory at a multiple of kBundleAlignment.
struct Unpacked {
  std::unique_ptr<unsigned char[], FreedPages> memory;
  std::size_t size;

  Bytes bytes() const { return {memory.get(), size}; }
};

// The content of a bundle compressed by zstd, in the form of clang's version 3 (CCOB). Some refer to the
// content of another bundle, their base, which is unpacked first: one of `others`. zstd compares its own
// checksum of the content. Throws FA_INTERNAL if a bundle is damaged or its base is missing.
Unpacked unpack(Bytes packed, const std::vector<Bytes>& others);

}  // namespace fa
