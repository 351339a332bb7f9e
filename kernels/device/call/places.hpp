// Where a workgroup works: its own place in the grid, or another one (call/order.hpp).
#pragma once

#include "device/arch/current.hpp"
#include "device/arch/device.hpp"
#include "device/call/order.hpp"

namespace fa {

// x / d in scalar registers, for x below kMostReordered.
FA_DEVICE unsigned quotient(unsigned x, unsigned d) {
  return uniform(static_cast<int>(quotient_by(x, __builtin_amdgcn_rcpf(static_cast<float>(d)))));
}

// The workgroup's place in the grid.
FA_DEVICE WorkgroupPlace own_place() {
  return {static_cast<int>(__builtin_amdgcn_workgroup_id_x()),
          static_cast<int>(__builtin_amdgcn_workgroup_id_y()),
          static_cast<int>(__builtin_amdgcn_workgroup_id_z())};
}

// Its work, in a launch of `blocks` workgroups for each of `heads` heads.
template <class Params>
FA_DEVICE WorkgroupPlace place_among(const Params& params, unsigned blocks, unsigned heads) {
  constexpr bool kDies = traits(kCurrentGfx).die_units != 0;
  const WorkgroupPlace found = place_among<kDies>(own_place(), params, blocks, heads, quotient);
  return {uniform(found.block), uniform(found.head), uniform(found.batch)};
}

}  // namespace fa
