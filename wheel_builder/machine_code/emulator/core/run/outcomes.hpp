// Outcomes of an instruction's executions, for choosing test calls: whether it changed its destination, the
// ways taken by comparisons, selections, carries and branches, and whether a comparison met equal operands.
#pragma once
#include <vector>

#include "run/wave.hpp"

namespace emu {
enum OutcomeBits : u8 { kChanged = 1, kTrue = 2, kFalse = 4, kEqual = 8 };

class Outcomes {
 public:
  void before(const Wave& w, const Inst& in);
  u8 after(const Wave& w, const Inst& in) const;  // OutcomeBits

 private:
  std::vector<u32> words_;  // of all destinations
  u64 exec_ = 0;
  bool equal_ = false;
};
}  // namespace emu
