// The plan's input from the registry: the existing kernels.
#pragma once

#include <cstdint>
#include <string>

#include "device/arch/names.hpp"
#include "host/plan/plan.hpp"
#include "host/registry/select.hpp"

namespace fa {

// Any head dim of a call, as the registry's type.
int bounded(std::int64_t head_dim);

// The forward kernels of an arch for a dtype and head dims.
struct Kernels {
  Gfx arch;
  DType dtype;
  OpSet there;
};

// arch as the runtime reports it or bare; dtype by name. Throws FA_UNSUPPORTED with a reason naming the head
// dim, or v's, if v's differs and no kernel has both.
Kernels forward_kernels(const std::string& arch, const std::string& dtype, std::int64_t head_dim,
                        std::int64_t v_head_dim);

// The kernel of a plan. Throws FA_UNSUPPORTED if there is none for the head dim, for a mask or for codes.
Selection served_kernel(const Plan& plan, const Kernels& kernels, std::int64_t head_dim, Reads reads);

}  // namespace fa
