// What each gfx arch can do.  The one table; kernels ask it for a capability, never for an arch.
// Host and device.
#pragma once

#include <stdint.h>

#include "fa/arch/gfx.hpp"

namespace fa {

enum class MatrixUnit {
  mfma,  // CDNA: matrix instructions over 64 lanes
  wmma,  // RDNA3: matrix instructions over 32 lanes
  dot2,  // RDNA2: no matrix instructions, two multiply-adds a lane
};

struct ArchTraits {
  int wave;       // lanes of a wave
  int lds_bytes;  // most LDS that one workgroup may have
  int simds;      // SIMDs of a compute unit
  int vgprs;      // most vector registers of a wave (with AccVGPRs where they are separate)
  MatrixUnit unit;
  int bf16_k;  // contraction length of the 32x32 bf16 matrix instruction; 0 where there is none
  bool separate_accumulators;  // matrix results live in registers of their own (AccVGPRs) only
  bool packed_fp32;            // fp32 multiply, add and fma of two neighbours at once
  uint32_t buffer_word3;  // format word of a raw buffer resource: 32-bit elements, offsets checked as bytes
};

constexpr ArchTraits traits(Gfx arch) {
  switch (arch) {
    case Gfx::gfx908: return {64, 65536, 4, 512, MatrixUnit::mfma, 4, true, false, 0x00027000};
    case Gfx::gfx942: return {64, 65536, 4, 512, MatrixUnit::mfma, 8, false, true, 0x00027000};
    case Gfx::gfx1030: return {32, 65536, 2, 256, MatrixUnit::dot2, 0, false, false, 0x31014000};
    case Gfx::gfx1100: return {32, 65536, 2, 256, MatrixUnit::wmma, 0, false, false, 0x31004000};
  }
  return {};
}

}  // namespace fa
