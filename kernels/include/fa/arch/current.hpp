// The arch that this device pass compiles for.  The only file that looks at the compiler's gfx macros.
#pragma once

#include "fa/arch/traits.hpp"

namespace fa {

#if defined(__gfx908__)
inline constexpr Gfx kCurrentGfx = Gfx::gfx908;
#elif defined(__gfx942__)
inline constexpr Gfx kCurrentGfx = Gfx::gfx942;
#elif defined(__gfx1030__)
inline constexpr Gfx kCurrentGfx = Gfx::gfx1030;
#elif defined(__gfx1100__)
inline constexpr Gfx kCurrentGfx = Gfx::gfx1100;
#else
#error \
    "flash-attn-rocm has no kernels for this arch; arch/gfx.hpp, arch/traits.hpp and arch/current.hpp list those it has"
#endif

}  // namespace fa
