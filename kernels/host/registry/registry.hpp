// The kernels of this library, from registry.inc, which is generated from the support table.
#pragma once

#include <string>
#include <vector>

#include "host/registry/bundle.hpp"

namespace fa {

inline constexpr int kAnyHeadDim = 0;

// One kernel for one op, dtype and head dim, with a code object for each of `archs`.
struct Instance {
  std::string op;
  std::string dtype;
  int head_dim;      // kAnyHeadDim: given at run time
  std::string name;  // also the kernel's symbol
  std::vector<std::string> archs;

  bool has(const std::string& gfx) const;
};

const std::vector<Instance>& registry();

// The major version of the compiler of their machine code. It selects their rows in the table of tiles.
int clang_major();

// The compressed code objects of `gfx`: one for each of its instances, in the order of their names.
Bytes packed_code(const std::string& gfx);

// Those of all archs.
std::vector<Bytes> packed_codes();

// The place of an instance's code object among those of `gfx`.
std::size_t place_of(const Instance& instance, const std::string& gfx);

// The archs of all instances, in the registry's order, each once.
const std::vector<std::string>& registered_archs();

// The GPUs that run their code, in the table's order.
const std::vector<std::string>& registered_gpus();

// "a, b, c"
std::string joined(const std::vector<std::string>& words);

}  // namespace fa
