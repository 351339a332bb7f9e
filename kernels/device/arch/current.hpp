// The arch of this device pass. Only this file reads the compiler's gfx macros.
#pragma once

#include "device/arch/traits.hpp"

namespace fa {

struct CurrentGfx {
  bool known;
  Gfx arch;
};

constexpr bool same(const char* one, const char* other) {
  while (*one != '\0' && *one == *other) ++one, ++other;
  return *one == *other;
}

constexpr CurrentGfx current_gfx() {
#define FA_GPU(gpu, arch, ...) \
  if (same(__amdgcn_processor__, gpu)) return {true, Gfx::arch};
#include "generated/device/archs.inc"
#undef FA_GPU
  return {};
}
static_assert(current_gfx().known,
              "flash-attn-rocm has no kernels for this arch; kernels/tables/gpus.toml lists those it has");

inline constexpr Gfx kCurrentGfx = current_gfx().arch;

}  // namespace fa
