#include "host/calls/mask_ranges.hpp"

#include <cstdint>
#include <string>

#include "device/call/every_tile.hpp"
#include "device/call/sequence.hpp"
#include "host/plan/fwd_plan.hpp"

namespace fa {

void launch_mask_ranges(MaskRangesParams ranges, const Selection& reader, const Place& place) {
  const auto [arch, dtype] = tabled(reader.gfx, reader.instance->dtype);
  if (ranges.shift == 1) ranges.hidden = dtype == DType::fp16 ? 0xfc00'fc00 : 0xff80'ff80;
  const auto many = [](std::int64_t stride, std::int64_t number) { return stride == 0 ? 1 : number; };
  const std::int64_t blocks = blocks_of_rows(ranges.seqlen_q, mask_rows(arch));
  const Grid grid{many(ranges.mask_row, blocks), many(ranges.mask_head, ranges.nheads),
                  many(ranges.mask_batch, ranges.batch), kMaskRangesThreads};
  // One kernel serves both dtypes, because it compares bits.
  const Selection found =
      served(name(Op::mask_ranges), reader.gfx, std::string(name(DType::fp16)), kAnyHeadDim);
  require_launchable(found, grid);
  launch(found, grid, ranges, place);
}

}  // namespace fa
