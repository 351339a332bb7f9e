// The one place that decides whether a call is served, and by which instance.
#pragma once

#include <string>

#include "device/arch/names.hpp"
#include "host/registry/registry.hpp"

namespace fa {

struct Selection {
  const Instance* instance;  // null: not served
  std::string gfx;           // whose machine code the GPU runs, without feature flags: "gfx942"
  std::string reason;        // why not, in words; "" when served
};

// arch as the runtime reports it ("gfx942:sramecc+:xnack-") or bare; dtype by name ("fp16").
Selection select(const std::string& op, const std::string& arch, const std::string& dtype, int head_dim);

// The same; throws FA_UNSUPPORTED with the reason where there is none.
Selection served(const std::string& op, const std::string& arch, const std::string& dtype, int head_dim);

// Whose machine code a GPU runs; its own name where nothing is known of it.
std::string code_object_of(const std::string& arch);

// A GPU in messages: "gfx942", or "gfx1031, which runs the code of gfx1030"; arch as the runtime reports it.
std::string shown(const std::string& arch);

// What the registry spells, as the tables of archs name it.
struct Tabled {
  Gfx arch;
  DType dtype;
};

// Throws FA_INTERNAL where the tables lack one.
Tabled tabled(const std::string& gfx, const std::string& dtype);

}  // namespace fa
