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

// An arch and a dtype that the library has forward kernels for.
struct Kind {
  Gfx arch;
  DType dtype;
  bool exact;   // one of them is for exactly the head dim asked for
  bool wide;    // likewise, of those whose waves divide it
  bool uneven;  // there is a kernel for it and v's different one
};

// arch as the runtime reports it or bare; dtype by name. Throws FA_UNSUPPORTED with a reason naming the head
// dim, or v's, if v's differs and no kernel has both.
Kind served_kind(const std::string& arch, const std::string& dtype, std::int64_t head_dim,
                 std::int64_t v_head_dim);

// The kernels of a path, or those with a mask.
constexpr Op op_of(Path path, bool masked) { return masked ? Op::fwd_masked : op_of(path); }

// The kernel of a plan. Throws FA_UNSUPPORTED if there is none for the head dim, or for a mask.
Selection served_kernel(const Plan& plan, const Kind& kind, std::int64_t head_dim, bool masked);

}  // namespace fa
