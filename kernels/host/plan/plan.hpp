// The one place that chooses how a forward call is computed.  Pure: dispatch, is_supported and explain ask
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/arch/names.hpp"
#include "host/plan/paths.hpp"

namespace fa {

// What the choice depends on.  Counts are not negative (head_dim may be anything); nheads is a multiple of
// nheads_k.
struct PlanRequest {
  Gfx arch;
  DType dtype;
  std::int64_t head_dim;
  bool exact;  // there is a kernel for exactly this head_dim
  std::int64_t batch, max_seqlen_q, max_seqlen_k, nheads, nheads_k;
  std::int64_t compute_units;  // of the device; for an automatic number of splits, and for tall workgroups
  std::int64_t num_splits;     // wanted; 0: automatic
  bool dropout;
  bool aligned;  // pointers and strides are as FwdParams wants them
  bool tall;     // there is a kernel of tall workgroups, and it computes what the call asks for
  bool masked;   // with an attn_mask
  bool wide;     // there is a kernel for exactly this head_dim, whose waves divide it
  bool uneven;   // v has another head dim, there is a kernel for both, and it computes what the call asks for
};

struct Plan {
  Path path;
  std::int32_t splits;  // parts that the keys are cut into; above 1 only on the paths split, wide and latent
  std::string reason;
};

// The path uneven is for calls as they are; of a call with another v that gets another path, v is padded.

// Up to this many queries of a sequence are few: more fill the waves of a workgroup by themselves.
inline constexpr std::int64_t kFewQueries = 16;

// Keys of a part in an automatic choice: joining shorter ones takes longer than they save.
inline constexpr std::int64_t kMinKeysOfSplit = 64;

// Queries and keys of a sequence from which on tall workgroups are worth while.  Under a causal mask each of
// them has twice the hidden keys on its diagonal, and a sequence's last one has more rows without a query. As
// modelled, they are as fast as others with so many, and slower with 512 (docs/modelled.md).
inline constexpr std::int64_t kLongSequence = 2048;

Plan plan(const PlanRequest& request);

// A call of multi-head latent attention; head_dim is that of K, for which there is a kernel.
struct LatentRequest {
  Gfx arch;
  DType dtype;
  std::int64_t head_dim, batch, seqlen_q, seqlen_k, nheads;
  std::int64_t compute_units, num_splits;  // as above
};

// Its path is latent.
Plan latent_plan(const LatentRequest& request);

// What the HIP runtime says of a device's size, by its attributes.
struct Counted {
  int physical;         // PhysicalMultiProcessorCount
  int multiprocessors;  // MultiprocessorCount
  int threads;          // MaxThreadsPerMultiProcessor
};

// The compute units of a device, `arch` as the runtime reports it.  Where a workgroup may run on two units,
// runtimes count pairs of them: all of them in MultiprocessorCount, those of Windows (PAL) and ROCm's newer
// ones in PhysicalMultiProcessorCount, too.  What has room for more threads than one unit is such a pair.
int compute_units_of(std::string_view arch, const Counted& counted);

// Dies of a device that each have an L2 of their own, for the order of workgroups; 1 where it is not known.
int dies_of(Gfx arch, std::int64_t compute_units);

}  // namespace fa
