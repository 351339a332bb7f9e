// What each gfx arch can do, from kernels/tables.  Kernels ask for a capability, never for an arch.
// Host and device.
#pragma once

#include <stdint.h>

#include "device/arch/gfx.hpp"

namespace fa {

// How machine code works on a generation of GPUs.  Only the table of tiles names one; kernels ask for what it
// can do.
enum class Isa {
#define FA_ISA(isa) isa,
#include "generated/device/archs.inc"
#undef FA_ISA
};

enum class Family {
  cdna,  // gfx9's encoding, waves of 64 lanes, workgroups on one compute unit
  rdna,  // the encoding of gfx10 and later, waves of 32 lanes, workgroups on two compute units
};

enum class MatrixUnit {
  mfma,        // CDNA: matrix instructions over 64 lanes
  wmma,        // RDNA3: matrix instructions over 32 lanes, both halves of which hold all of an operand
  wmma_split,  // RDNA4: each half holds half of it
  dot2,        // RDNA2: no matrix instructions, two multiply-adds a lane
};

struct ArchTraits {
  Isa isa;
  int die_units;  // compute units of an XCD, a die with an L2 of its own; 0: GPUs are one die

  // What instructions there are.
  Family family;
  MatrixUnit unit;
  int step_columns;  // columns (queries or keys) of a matrix step
  int step_clocks;   // of the instruction of a matrix step; 0 where there are no matrix instructions
  int fp16_k;        // contraction length of the longest 32x32 fp16 matrix instruction; 0: there is none
  int bf16_k;        // likewise of bf16
  bool matrix_coexecution;  // matrix instructions run while the VALU works for other waves of the SIMD
  bool separate_acc_vgprs;  // matrix results are in AccVGPRs only, a register file of their own
  bool back_off_barrier;    // where false, the compiler waits for all loads before a barrier
  bool packed_fp32;         // fp32 multiply, add and fma of two neighbours at once
  bool transposed_reads;    // an LDS read turns 4 rows of 16 elements of 16 bits: a lane gets a column
  bool direct_loads;        // loads of 16 bytes a lane write straight into LDS
  bool bf16_pairs;          // an instruction rounds two fp32 to two bf16
  bool flushes_denormals;   // matrix instructions of fp16 and bf16 take denormals as zero
  uint32_t buffer_word3;    // format word of a raw buffer resource: 32-bit elements, offsets checked as bytes

  // What runs a workgroup.  Granules are the steps in which something is handed out.
  int wave;              // lanes of a wave
  int simds;             // of a compute unit
  int cus_of_workgroup;  // compute units that share a workgroup's waves: 1, or 2 of a workgroup processor
  int waves_per_simd;    // that a SIMD holds at most
  int vgprs;             // of a SIMD, a lane (where AccVGPRs are separate, without them)
  int vgpr_granule;
  int vgpr_encoding_granule;  // in which a kernel's descriptor counts
  int sgprs;                  // of a SIMD; 0: every wave has all it can name
  int sgpr_granule;
  int lds_bytes;  // of a compute unit, and the most that one workgroup may have
  int lds_granule;

  // How a launch sets up registers.
  bool architected_flat_scratch;  // the address of private memory is no kernel argument
  bool packed_work_item_ids;      // x, y and z share v0
  bool workgroup_ids_in_ttmps;    // a workgroup's number is in trap registers, not in SGPRs
  bool nan_modes;                 // a descriptor says how NaN is treated by clamp, minimum and maximum
};

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc++20-designator"
constexpr ArchTraits traits(Gfx arch) {
  switch (arch) {
#define FA_ARCH(arch, ...) \
  case Gfx::arch: return {__VA_ARGS__};
#include "generated/device/archs.inc"
#undef FA_ARCH
  }
  return {};
}
#pragma clang diagnostic pop

}  // namespace fa
