// A launch: kernel, memory and outcome.
#pragma once
#include <vector>

#include "checks/lds_notes.hpp"
#include "run/wave.hpp"

namespace emu {
// MODE: rounding and denormals. Implemented are round-to-nearest-even with all denormals kept, as HIP kernels
// have it, and the same with those of fp32 flushed.
constexpr u32 kFloatMode = 0xff, kDenormalsKept = 0xf0, kSingleFlushed = 0xc0;
// MODE.FP16_OVFL, and its place in a kernel's descriptor.
constexpr u32 kOverflowMode = 1u << 23, kOverflowOfKernel = 1u << 26;

struct Options {
  u64 seed = 0;
  u64 max_instructions = 1ull << 32;  // per wave, beyond it a loop counts as endless
  f64 max_seconds = 0;                // processor time of a launch, over all its threads. 0: unlimited
  u32 threads = 1;
  u32 checks = 0;       // Check bits
  u32 quantum = 256;    // most instructions before another wave gets its turn. 1: in step
  i64 only_group = -1;  // linear index of the only workgroup to run, or all
  bool trace = false;
  bool record = false;    // record the execution of each wave of only_group
  bool outcomes = false;  // record the outcomes of instructions (outcomes.hpp)
};

struct Launch {
  const Program* program = nullptr;
  const KernelInfo* kernel = nullptr;
  u32 grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, dynamic_lds = 0;
  std::vector<u8> kernarg;
  std::vector<Buffer> buffers;  // sorted by base
  Options options;
  Report report;
  std::vector<u64> counts;        // executions per instruction
  std::vector<u64> lanes_active;  // sum of active lanes per instruction
  std::vector<u8> outcomes;       // per instruction, if asked for
  std::vector<u8> packet;         // dispatch packet, for kernels with access to it
  u8* image = nullptr;
  std::vector<Record> recorded;  // per wave of only_group
  bool alone = false;            // workgroups run one after another, because atomics make their order matter
  u64 lds_size() const { return static_cast<u64>(kernel->lds) + dynamic_lds; }
  bool check(Check c) const { return options.checks & static_cast<u32>(c); }
};

struct Group {
  Launch* launch = nullptr;
  u32 id[3] = {0, 0, 0}, linear = 0;
  std::vector<u8> lds;
  Report report;
  std::vector<u8> lds_undefined;
  std::vector<DwordHistory> lds_history;
  u32 lds_epoch = 0;  // beginnings and barriers so far: they order every access to LDS before every later one
  LdsNotes lds_notes;                        // of this epoch, in place of histories
  Pages touched;                             // global memory. For serial workgroups: of all so far
  std::vector<std::unique_ptr<Page>> spare;  // pages of earlier workgroups, with expired histories
  u32 touched_epoch = 0;                     // of the valid histories in `touched`
  Letters lds_told, told;                    // clocks passed on by atomics on LDS and global memory
  u64 last_page = ~0ull;
  Page* page = nullptr;
  std::vector<std::unique_ptr<Wave>> waves;
  std::vector<u64> counts, active;
  std::vector<u8> outcomes;
  std::unordered_map<u32, std::vector<Wave*>> global_barriers;  // who waits, by resource
  void forget_touched() {
    constexpr size_t kMostSpare = 1024;  // 7 MB
    for (auto& kv : touched)
      if (spare.size() < kMostSpare) spare.push_back(std::move(kv.second));
    touched.clear();
    last_page = ~0ull;
    ++touched_epoch;
  }
  void next_lds_epoch() {
    ++lds_epoch;
    lds_notes.forget(lds_history.size());
  }
};

// A workgroup's part in the comparison of workgroups.
struct GroupTrace {
  u32 linear;
  std::vector<Span> spans;
};
std::vector<Span> spans_of(const Group& g);
void races_across(Launch& launch, std::vector<GroupTrace>& groups);

inline u64 code_base(const Wave& w) { return reinterpret_cast<u64>(w.launch->image); }

// The mode at a kernel's start.
inline u32 float_mode(const KernelInfo& k) { return k.rsrc1 >> 12 & kFloatMode; }

void run_launch(Launch& launch);
u32 vgprs_allocated(const Program& program, const KernelInfo& kernel);
}  // namespace emu
