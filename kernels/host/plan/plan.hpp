// Chooses how a forward call is computed. The only place for it. Pure: dispatch, is_supported and explain use
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/arch/names.hpp"
#include "host/plan/paths.hpp"

namespace fa {

// The properties that determine the choice. Counts are non-negative (head_dim may be anything); nheads is a
// multiple of nheads_k.
struct PlanRequest {
  Gfx arch;
  DType dtype;
  std::int64_t head_dim;
  OpSet kernels;  // forwards with a kernel for exactly this head_dim, and for v's
  std::int64_t batch, max_seqlen_q, max_seqlen_k, nheads, nheads_k;
  std::int64_t compute_units;  // of the device; for an automatic number of splits, and for tall workgroups
  std::int64_t num_splits;     // wanted; 0: automatic
  bool dropout;
  bool aligned;  // pointers and strides are as FwdParams wants them
  bool plain;    // may profit from tall workgroups, which have no features
  bool masked;   // with an attn_mask
  bool coded;    // k and v are codes of 8 bits
  bool causal;   // rows do not see later keys
};

// How a call is computed. Crosses the C interface as fa_plan_result, and is flash_attn_rocm's Plan in Python.
template <class PathOf>
struct PlanOf {
  PathOf path;
  std::int32_t splits;  // parts of the keys; above 1 only on the paths split, wide and latent
  std::string reason;
};

using Plan = PlanOf<Path>;
using BwdPlan = PlanOf<BwdPath>;

// Only the path uneven reads v as it is. On any other path, a v of another head dim is padded.

Plan plan(const PlanRequest& request);

// Why kernels of a path cannot compute a call in num_splits parts, or "". `featured`: with softcap, ALiBi,
// dropout or pages. Only the registry knows whether there are such kernels.
std::string misfit(Path path, const PlanRequest& request, bool featured);

// A call of multi-head latent attention. head_dim is K's, and there is a kernel for it.
struct LatentRequest {
  Gfx arch;
  DType dtype;
  std::int64_t head_dim, batch, seqlen_q, seqlen_k, nheads;
  std::int64_t compute_units, num_splits;  // as above
  bool coded;                              // the cache has 8 bits
  bool scaled;                             // its rows hold their scales (kScaledRowBytes)
};

// Its path is latent.
Plan latent_plan(const LatentRequest& request);

// Parts of the keys that such kernels can compute.
std::int64_t most_latent_parts(Op op, Gfx arch, DType dtype, int head_dim, std::int64_t seqlen_k);

// Why so many parts do not fit.
std::string too_many_parts(std::int64_t most, std::int64_t given);

// A device's size as reported by the HIP runtime's attributes.
struct Counted {
  int physical;         // PhysicalMultiProcessorCount
  int multiprocessors;  // MultiprocessorCount
  int threads;          // MaxThreadsPerMultiProcessor
};

// The compute units of a device, `arch` as the runtime reports it. If a workgroup may run on two units,
// runtimes count pairs of units: all runtimes in MultiprocessorCount, Windows (PAL) and newer ROCm also in
// PhysicalMultiProcessorCount. A count is of pairs if one has room for more threads than a unit.
int compute_units_of(std::string_view arch, const Counted& counted);

}  // namespace fa
