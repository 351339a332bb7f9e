#include "host/registry/registry.hpp"

#include <algorithm>
#include <string_view>

#include "device/arch/names.hpp"

// kernels/build/instances/bundle.py writes registry.inc, and fatbin.S with these functions. The machine code
// is the same on every platform.
#define FA_INSTANCE(op, dtype, head_dim, name, archs)
#define FA_CLANG(major)
#define FA_ARCH(gfx) extern "C" __attribute__((visibility("hidden"), sysv_abi)) fa::Bytes fa_bundle_##gfx();
#include "registry.inc"
#undef FA_ARCH
#undef FA_CLANG
#undef FA_INSTANCE

namespace fa {

namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

}  // namespace

bool Instance::has(const std::string& gfx) const {
  return std::find(archs.begin(), archs.end(), gfx) != archs.end();
}

const std::vector<Instance>& registry() {
  static const std::vector<Instance> all = {
#define FA_INSTANCE(op, dtype, head_dim, name, archs) {#op, #dtype, head_dim, #name, split(archs)},
#define FA_CLANG(major)
#define FA_ARCH(gfx)
#include "registry.inc"
#undef FA_ARCH
#undef FA_CLANG
#undef FA_INSTANCE
  };
  return all;
}

int clang_major() {
#define FA_INSTANCE(op, dtype, head_dim, name, archs)
#define FA_CLANG(major) return major;
#define FA_ARCH(gfx)
#include "registry.inc"
#undef FA_ARCH
#undef FA_CLANG
#undef FA_INSTANCE
  return 0;
}

Bytes packed_code(const std::string& gfx) {
#define FA_INSTANCE(op, dtype, head_dim, name, archs)
#define FA_CLANG(major)
#define FA_ARCH(arch) \
  if (gfx == #arch) return fa_bundle_##arch();
#include "registry.inc"
#undef FA_ARCH
#undef FA_CLANG
#undef FA_INSTANCE
  damaged("it has no bundle for " + gfx + ", which the registry names");
}

std::vector<Bytes> packed_codes() {
  return {
#define FA_INSTANCE(op, dtype, head_dim, name, archs)
#define FA_CLANG(major)
#define FA_ARCH(arch) fa_bundle_##arch(),
#include "registry.inc"
#undef FA_ARCH
#undef FA_CLANG
#undef FA_INSTANCE
  };
}

std::size_t place_of(const Instance& instance, const std::string& gfx) {
  std::size_t place = 0;
  for (const Instance& each : registry()) place += each.has(gfx) && each.name < instance.name ? 1 : 0;
  return place;
}

const std::vector<std::string>& registered_archs() {
  // Collected once: every call needs it, and the registry has hundreds of names.
  static const std::vector<std::string> all = [] {
    std::vector<std::string> archs;
    for (const Instance& instance : registry()) {
      for (const std::string& arch : instance.archs) {
        if (std::find(archs.begin(), archs.end(), arch) == archs.end()) archs.push_back(arch);
      }
    }
    return archs;
  }();
  return all;
}

const std::vector<std::string>& registered_gpus() {
  static const std::vector<std::string> all = [] {
    const std::vector<std::string>& archs = registered_archs();
    std::vector<std::string> gpus;
    for (const Gpu& gpu : kAllGpus) {
      if (std::find(archs.begin(), archs.end(), name(gpu.code_object)) != archs.end()) {
        gpus.emplace_back(gpu.name);
      }
    }
    return gpus;
  }();
  return all;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace fa
