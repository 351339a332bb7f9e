// All rows of the table of tiles, for the host.
#pragma once

#define FA_TILES_fwd "generated/device/tiles/all/fwd.inc"
#define FA_TILES_fwd_tall "generated/device/tiles/all/fwd_tall.inc"
#define FA_TILES_fwd_uneven "generated/device/tiles/all/fwd_uneven.inc"
#define FA_TILES_fwd_wide "generated/device/tiles/all/fwd_wide.inc"
#define FA_TILES_fwd_masked "generated/device/tiles/all/fwd_masked.inc"
#define FA_TILES_decode "generated/device/tiles/all/decode.inc"
#define FA_TILES_mla "generated/device/tiles/all/mla.inc"
#define FA_TILES_bwd_dkdv "generated/device/tiles/all/bwd_dkdv.inc"
#define FA_TILES_bwd_dq "generated/device/tiles/all/bwd_dq.inc"
#define FA_TILES_bwd_dkdv_uneven "generated/device/tiles/all/bwd_dkdv_uneven.inc"
#define FA_TILES_bwd_dq_uneven "generated/device/tiles/all/bwd_dq_uneven.inc"
#define FA_TILES_bwd_dkdv_masked "generated/device/tiles/all/bwd_dkdv_masked.inc"
#define FA_TILES_bwd_dq_masked "generated/device/tiles/all/bwd_dq_masked.inc"
#define FA_TILES_bwd_fused "generated/device/tiles/all/bwd_fused.inc"
#include "device/call/tiles.hpp"
