// Where a workgroup works: its own place in the grid, or another one (call/order.hpp).
#pragma once

#include "device/arch/current.hpp"
#include "device/arch/device.hpp"
#include "device/call/order.hpp"

namespace fa {

// The workgroup's place in the grid.
FA_DEVICE WorkgroupPlace own_place() {
  return {static_cast<int>(__builtin_amdgcn_workgroup_id_x()),
          static_cast<int>(__builtin_amdgcn_workgroup_id_y()),
          static_cast<int>(__builtin_amdgcn_workgroup_id_z())};
}

// Waits once for the order and what loaded_together() waits for beside it.
FA_DEVICE void order_together(LaunchOrder& order) {
  loaded_together(order.together, order.in_turn, order.flip, order.past);
  if constexpr (traits(kCurrentGfx).die_units != 0) {
    loaded_together(order.dies, order.die_factor, order.die_each, order.die_more, order.row.number,
                    order.row.factor, order.row.shift, order.groups.number, order.groups.factor,
                    order.groups.shift);
  }
}

// Its work.
FA_DEVICE WorkgroupPlace place_in(const LaunchOrder& order) {
  return place_among<traits(kCurrentGfx).die_units != 0>(own_place(), order);
}

}  // namespace fa
