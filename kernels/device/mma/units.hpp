// The matrix units of all archs.
#pragma once

#include "device/mma/dot2.hpp"
#include "device/mma/mfma.hpp"
#include "device/mma/mfma_fp8.hpp"
#include "device/mma/mfma_narrow.hpp"
#include "device/mma/wmma.hpp"
#include "device/mma/wmma_fp8.hpp"
#include "device/mma/wmma_split.hpp"
