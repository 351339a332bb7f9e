// All rows of the table of tiles, for the host.
#pragma once

#define FA_TILES_forward "generated/device/tiles/all/forward.inc"
#define FA_TILES_dkdv "generated/device/tiles/all/dkdv.inc"
#define FA_TILES_dq "generated/device/tiles/all/dq.inc"
#include "device/call/tiles.hpp"
