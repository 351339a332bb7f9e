// The gfx archs that kernels exist for, and their names.  Host and device; includes nothing of ours.
#pragma once

#include <string_view>

namespace fa {

// instances/generate.py reads the known archs from this enum.
enum class Gfx { gfx908, gfx942, gfx1030, gfx1100 };

inline constexpr Gfx kAllGfx[] = {Gfx::gfx908, Gfx::gfx942, Gfx::gfx1030, Gfx::gfx1100};

constexpr std::string_view name(Gfx arch) {
  switch (arch) {
    case Gfx::gfx908: return "gfx908";
    case Gfx::gfx942: return "gfx942";
    case Gfx::gfx1030: return "gfx1030";
    case Gfx::gfx1100: return "gfx1100";
  }
  return {};
}

// Reads a HIP `gcnArchName`: the arch, then target features that our code objects do not depend on
// ("gfx942:sramecc+:xnack-").  False, and `*arch` untouched, when there are no kernels for it.
constexpr bool parse_gfx(std::string_view gcn_arch_name, Gfx* arch) {
  const std::string_view wanted = gcn_arch_name.substr(0, gcn_arch_name.find(':'));
  for (const Gfx known : kAllGfx) {
    if (wanted == name(known)) {
      *arch = known;
      return true;
    }
  }
  return false;
}

}  // namespace fa
