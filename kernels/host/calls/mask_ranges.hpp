// The launch that finds the keys shown by a mask, before kernels that skip the others.
#pragma once

#include "device/call/params.hpp"
#include "host/launch/launch.hpp"

namespace fa {

// The mask of a kernel's arguments. The caller adds `out`, where the ranges are left, and the sizes.
template <class Masked>
MaskRangesParams ranges_of(const Masked& m) {
  MaskRangesParams r{};
  r.mask = m.mask, r.mask_batch = m.mask_batch, r.mask_head = m.mask_head, r.mask_row = m.mask_row;
  r.shift = static_cast<MaskKind>(m.mask_kind) == MaskKind::bytes ? 0 : 1;
  return r;
}

// For a mask with has_ranges(), read by the kernel `reader`. Throws as launch does.
void launch_mask_ranges(MaskRangesParams ranges, const Selection& reader, const Place& place);

}  // namespace fa
