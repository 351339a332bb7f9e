// Kernels in place of shipped ones: the same kernels with other rows of the table of tiles.
#pragma once

#include <cstdint>
#include <string>

#include "host/launch/hip.hpp"
#include "host/launch/launch.hpp"
#include "host/plan/regimes.hpp"
#include "host/registry/registry.hpp"

namespace fa {

// A kernel's code object is number `place` of the arch's code objects in `packed`, compressed as the
// library's. `rows`: of a workgroup, which has `threads`. With an empty `row` it is the shipped kernel.
// Without a regime it is for all calls.
struct Candidate {
  std::string kernel, row, regime;
  Bytes packed;
  std::int64_t place, rows, threads;
};

// Later launches of the kernel in the regime on `device`, which reports `arch`, use the candidate. A row
// that was loaded before is not loaded again. Throws FA_INVALID and FA_RUNTIME_ERROR, and changes nothing
// then.
void replace(int device, const std::string& arch, const Candidate& candidate);

// How the kernel in use for a call divides its work: `shipped`, unless it was replaced.
Workgroups in_use(int device, const Instance& instance, const CallSizes& call, const Workgroups& shipped);

}  // namespace fa
