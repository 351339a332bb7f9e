// Names of archs, of the GPUs running their code, and of element types. Host only: including std::string
// would add a tenth to the compile time of a kernel.
#pragma once

#include <string_view>

#include "device/arch/dtype.hpp"
#include "device/arch/gfx.hpp"

namespace fa {

constexpr std::string_view name(Gfx arch) {
  switch (arch) {
#define FA_NAME(arch, name) \
  case Gfx::arch: return name;
#include "generated/device/archs.inc"
#undef FA_NAME
  }
  return {};
}

// The arch in a HIP `gcnArchName`, without target features ("gfx942" for "gfx942:sramecc+:xnack-"). Our code
// objects are independent of them.
constexpr std::string_view without_features(std::string_view gcn_arch_name) {
  return gcn_arch_name.substr(0, gcn_arch_name.find(':'));
}

struct Gpu {
  std::string_view name;
  Gfx code_object;    // the arch of its machine code
  int elf_machine;    // EF_AMDGPU_MACH: the low byte of e_flags in the ELF header of its code objects
  int compute_units;  // of the largest GPU of this name
};

inline constexpr Gpu kAllGpus[] = {
#define FA_GPU(gpu, arch, elf_machine, compute_units) {gpu, Gfx::arch, elf_machine, compute_units},
#include "generated/device/archs.inc"
#undef FA_GPU
};

// The GPU of a HIP `gcnArchName`, or null if it has no kernels.
constexpr const Gpu* find_gpu(std::string_view gcn_arch_name) {
  const std::string_view wanted = without_features(gcn_arch_name);
  for (const Gpu& known : kAllGpus) {
    if (wanted == known.name) return &known;
  }
  return nullptr;
}

// Parses a HIP `gcnArchName` into the arch of the GPU's machine code. Returns false and leaves `*arch` as it
// is if it has no kernels.
constexpr bool parse_gfx(std::string_view gcn_arch_name, Gfx* arch) {
  const Gpu* gpu = find_gpu(gcn_arch_name);
  if (gpu == nullptr) return false;
  *arch = gpu->code_object;
  return true;
}

constexpr std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::fp16: return "fp16";
    case DType::bf16: return "bf16";
  }
  return {};
}

constexpr bool parse_dtype(std::string_view text, DType* dtype) {
  for (const DType known : kAllDTypes) {
    if (text == name(known)) {
      *dtype = known;
      return true;
    }
  }
  return false;
}

}  // namespace fa
