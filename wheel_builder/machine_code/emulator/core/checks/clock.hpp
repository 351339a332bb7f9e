// A wave's knowledge of other waves' past, as vector clocks. A barrier passes it on to all waves of the
// workgroup, an atomic to every later atomic on the same address.
#pragma once
#include <array>
#include <memory>
#include <unordered_map>

#include "types.hpp"

namespace emu {
using Times = std::array<u32, 32>;              // of the waves of a workgroup: 1024 threads at most
using Others = std::unordered_map<u32, Times>;  // by workgroup
struct Knowledge {
  u32 group;
  Times own;  // of the waves of the same workgroup
  std::shared_ptr<const Others> others;
};
using Told = std::shared_ptr<const Knowledge>;
using Letters = std::unordered_map<u64, Told>;  // clocks left by atomics at addresses

class Clock {
 public:
  void start(u32 group, u32 wave);
  // Must be called before an access: accesses after passing a clock on are later than this clock.
  void step(u64 instruction) {
    if (told_ && told_at_ != instruction) advance();
  }
  void advance();
  u32 now() const { return known_[wave_]; }
  bool knows(u32 group, u32 wave, u32 time) const {
    return group == group_ ? time <= known_[wave] : knows_other(group, wave, time);
  }
  void hear(const Told& what);
  void hear(const Clock& other);  // of the same workgroup
  Told tell(u64 instruction);

 private:
  [[gnu::noinline]] bool knows_other(u32 group, u32 wave, u32 time) const;  // rare
  void hear_others(const std::shared_ptr<const Others>& what);
  Times known_{};  // of the waves of its workgroup. Its own entry is its time
  std::shared_ptr<const Others> others_;
  Told told_, heard_;  // the last ones
  u64 told_at_ = 0;
  u32 group_ = 0, wave_ = 0;
};
}  // namespace emu
