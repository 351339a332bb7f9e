// All rows of the table of tiles, for the host: of the plain loop, with the fields that the host reads.
#pragma once

#define FA_TILES_forward "generated/device/tiles/host/forward.inc"
#define FA_TILES_dkdv "generated/device/tiles/host/dkdv.inc"
#define FA_TILES_dq "generated/device/tiles/host/dq.inc"
#include "device/call/tiles.hpp"
