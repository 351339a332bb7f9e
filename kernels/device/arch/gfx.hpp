// The gfx archs with their own machine code, from archs.inc. Host and device.
#pragma once

namespace fa {

enum class Gfx {
#define FA_ARCH(arch, ...) arch,
#include "generated/device/archs.inc"
#undef FA_ARCH
};

inline constexpr Gfx kAllGfx[] = {
#define FA_ARCH(arch, ...) Gfx::arch,
#include "generated/device/archs.inc"
#undef FA_ARCH
};

}  // namespace fa
