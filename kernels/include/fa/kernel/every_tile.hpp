// All rows of the table of tiles, for the host.
#pragma once

#define FA_TILES_fwd "fa/kernel/tiles/all/fwd.inc"
#define FA_TILES_fwd_tall "fa/kernel/tiles/all/fwd_tall.inc"
#define FA_TILES_fwd_uneven "fa/kernel/tiles/all/fwd_uneven.inc"
#define FA_TILES_fwd_wide "fa/kernel/tiles/all/fwd_wide.inc"
#define FA_TILES_fwd_masked "fa/kernel/tiles/all/fwd_masked.inc"
#define FA_TILES_decode "fa/kernel/tiles/all/decode.inc"
#define FA_TILES_mla "fa/kernel/tiles/all/mla.inc"
#define FA_TILES_bwd_dkdv "fa/kernel/tiles/all/bwd_dkdv.inc"
#define FA_TILES_bwd_dq "fa/kernel/tiles/all/bwd_dq.inc"
#define FA_TILES_bwd_dkdv_uneven "fa/kernel/tiles/all/bwd_dkdv_uneven.inc"
#define FA_TILES_bwd_dq_uneven "fa/kernel/tiles/all/bwd_dq_uneven.inc"
#define FA_TILES_bwd_dkdv_masked "fa/kernel/tiles/all/bwd_dkdv_masked.inc"
#define FA_TILES_bwd_dq_masked "fa/kernel/tiles/all/bwd_dq_masked.inc"
#define FA_TILES_bwd_fused "fa/kernel/tiles/all/bwd_fused.inc"
#include "fa/kernel/tiles.hpp"
