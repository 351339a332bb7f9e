// Settings of the fake HIP runtime, from the environment.
//
//   FA_FAKE_HIP_ARCH         gcnArchName of each device, separated by commas; empty or not set: no device
//   FA_FAKE_HIP_DISASSEMBLY  folder with a pair <name>.co (a code object) and <name>.s (llvm-objdump -d) for
//                           every code object that may be loaded
//   FA_FAKE_HIP_FAIL         calls that fail, separated by commas: hipModuleLoadData=2 always, with that
//                           HIP error, hipModuleLoadData=2@3 only the third time; async=700: every launch
//                           reports success and does nothing, and the next call fails
//   FA_FAKE_HIP_SEED         order of waves and workgroups, content of registers and LDS (default 0)
//   FA_FAKE_HIP_THREADS      workgroups at a time (default 1)
//   FA_FAKE_HIP_CHECKS       sanitizers besides bounds checks: uninit,race,barrier,align (default: none)
//   FA_FAKE_HIP_TIME_LIMIT   seconds of processor time that one launch may take, over all its threads;
//                           beyond it the launch fails (default 0: no limit)
//   FA_FAKE_HIP_UNITS        single (default), or pairs: how compute units are counted where a workgroup may
//                           run on two, by ROCm's older runtimes, and by Windows' and newer ones
//   FA_FAKE_HIP_LAUNCH       execute (default), or skip: launches are checked and do nothing, for measuring
//                           what comes before them
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fake_hip {

constexpr const char* kAsync = "async";

struct PlannedFailure {
  std::string call;  // a HIP function, or kAsync
  int error;
  std::uint64_t only;  // its one occurrence, counted from 1. 0: every time
};

struct Settings {
  std::vector<std::string> archs;
  std::string disassembly;
  std::vector<PlannedFailure> failures;
  std::uint64_t seed = 0;
  std::uint32_t threads = 1;
  std::uint32_t checks = 0;  // bits of emu::Check
  double max_seconds = 0;
  bool counts_pairs = false;
  bool skips_launches = false;
  bool outcomes = false;  // report the outcomes of instructions
};

// Throws Failure (hipErrorNotInitialized) with all problems.
Settings read_settings();
std::vector<PlannedFailure> parse_failures(const std::string& text);

}  // namespace fake_hip
