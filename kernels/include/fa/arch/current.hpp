// The arch that this device pass compiles for.  The only file that looks at the compiler's gfx macros.
#pragma once

#include "fa/arch/traits.hpp"

namespace fa {

struct CurrentGfx {
  bool known;
  Gfx arch;
};

constexpr CurrentGfx current_gfx() {
  Gfx arch{};
  const bool known = parse_gfx(__amdgcn_processor__, &arch);
  return {known, arch};
}
static_assert(current_gfx().known,
              "flash-attn-rocm has no kernels for this arch; kernels/archs/gpus.toml lists those it has");

inline constexpr Gfx kCurrentGfx = current_gfx().arch;

}  // namespace fa
