// Capabilities of each gfx arch, from kernels/tables. Kernels ask for a capability, never for an arch. Host
// and device.
#pragma once

#include <stdint.h>

#include "device/arch/gfx.hpp"

namespace fa {

// Generation of the ISA. Only the table of tiles uses it. Kernels ask for capabilities.
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
  wmma,        // RDNA3: matrix instructions over 32 lanes; both halves hold a whole operand
  wmma_split,  // RDNA4: each half of the wave holds half of an operand
  dot2,        // RDNA1 and RDNA2: no matrix instructions; a lane multiplies pairs
  dot2_64,     // Vega 20: the same with waves of 64 lanes
};

// Formats of 8-bit floats in conversions and products.
enum class Fp8 {
  none,
  fnuz,  // CDNA3: a code of NaN in place of -0, a larger bias
  ocp,   // float8_e4m3fn and float8_e5m2
};

struct ArchTraits {
  Isa isa;
  int die_units;  // compute units of an XCD, a die with its own L2; 0: the GPU is one die

  // Instructions.
  Family family;
  MatrixUnit unit;
  int step_columns;         // columns (queries or keys) of a matrix step
  int step_clocks;          // cycles of a matrix step's instruction; 0 without matrix instructions
  int fp16_k;               // contraction length of the longest 32x32 fp16 matrix instruction; 0: none
  int bf16_k;               // likewise for bf16
  int fp8_k;                // likewise for fp8, of the unit's largest shape
  bool matrix_coexecution;  // matrix instructions overlap with VALU work of the SIMD's other waves
  bool separate_acc_vgprs;  // matrix results live in AccVGPRs only, a separate register file
  bool back_off_barrier;    // false: the compiler waits for all loads before a barrier
  bool packed_fp32;         // fp32 multiply, add and fma of two neighbouring registers at once
  bool transposed_reads;    // an LDS read transposes 4 rows of 16 16-bit elements: a lane gets a column
  bool direct_loads;        // loads of 16 bytes per lane write straight into LDS
  bool bf16_pairs;          // one instruction rounds two fp32 to two bf16
  bool bf16_products;       // a matrix step multiplies bf16; false: fp16 only
  bool packed_dots;         // the VALU adds two products of fp16 to fp32 at once; false: one
  bool matrix_interlock;    // the hardware waits for matrix results; false: the compiler keeps a distance
  bool lds_counter;         // LDS operations are counted, and waited for, apart from scalar loads
  bool late_operands;       // memory instructions read EXEC later; the compiler ignores s_and_saveexec
  bool short_code;          // fewer instructions before speed: the wheel of these GPUs is near its limit
  bool flushes_denormals;   // matrix instructions of fp16 and bf16 take denormals as zero
  bool flushes_sums;        // v_dot2 takes denormal sums as zero
  Fp8 fp8;                  // formats of 8-bit floats; none: no such instructions
  bool int8_d64;            // products of int8 at head dim 64, too
  uint32_t buffer_word3;    // format word of a raw buffer resource: 32-bit elements, offsets checked as bytes

  // Resources of a workgroup. Granules are allocation steps.
  int wave;              // lanes per wave
  int simds;             // per compute unit
  int cus_of_workgroup;  // compute units running one workgroup: 1, or 2 (a workgroup processor)
  int waves_per_simd;    // limit per SIMD
  int vgprs;             // per SIMD and lane (without AccVGPRs where these are separate)
  int vgpr_granule;
  int vgpr_encoding_granule;  // unit of the count in a kernel's descriptor
  int sgprs;                  // per SIMD; 0: every wave has all addressable ones
  int sgpr_granule;
  int lds_bytes;  // per compute unit, and the limit per workgroup
  int lds_granule;

  // Register setup at launch.
  bool architected_flat_scratch;  // private memory needs no kernel argument
  bool packed_work_item_ids;      // x, y and z share v0
  bool workgroup_ids_in_ttmps;    // workgroup numbers are in trap registers instead of SGPRs
  bool nan_modes;                 // a descriptor sets how clamp, minimum and maximum treat NaN

  constexpr bool matrix_instructions() const { return step_clocks != 0; }
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
