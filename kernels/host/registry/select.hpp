// Decides whether a call is supported, and selects its instance. The only place for this decision.
#pragma once

#include <string>

#include "device/arch/names.hpp"
#include "host/registry/registry.hpp"

namespace fa {

struct Selection {
  const Instance* instance;  // null: unsupported
  std::string gfx;           // the arch of the GPU's machine code, without feature flags: "gfx942"
  std::string reason;        // the reason if unsupported, else ""
};

// arch as the runtime reports it ("gfx942:sramecc+:xnack-") or bare; dtype by name ("fp16").
Selection select(const std::string& op, const std::string& arch, const std::string& dtype, int head_dim);

// As select. Throws FA_UNSUPPORTED with the reason if there is no instance.
Selection served(const std::string& op, const std::string& arch, const std::string& dtype, int head_dim);

// The arch of a GPU's machine code. Its own name if the GPU is unknown.
std::string code_object_of(const std::string& arch);

// A GPU in messages: "gfx942", or "gfx1031, which runs the code of gfx1030"; arch as the runtime reports it.
std::string shown(const std::string& arch);

// Enumerators for the registry's names.
struct Tabled {
  Gfx arch;
  DType dtype;
};

// Throws FA_INTERNAL for a name missing in the tables.
Tabled tabled(const std::string& gfx, const std::string& dtype);

}  // namespace fa
