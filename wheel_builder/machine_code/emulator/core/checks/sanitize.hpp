// Errors in a kernel detectable by a run, and the shadow state for finding them.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "code/inst.hpp"

namespace emu {
enum class Check : u32 { uninit = 1, race = 2, barrier = 4, align = 8 };  // bounds are always checked

struct Finding {
  std::string kind, detail;
  u32 inst = 0, group[3] = {0, 0, 0};
  int wave = 0, lane = 0;
  u64 address = 0, count = 0;
};

// Findings of one workgroup or of a whole run. One per (kind, instruction): the first, with a count.
class Report {
 public:
  void add(const Finding& f, u64 count = 1) {
    auto [slot, is_new] = found_.emplace(std::make_pair(f.kind, f.inst), f);
    slot->second.count = (is_new ? 0 : slot->second.count) + count;
  }
  void add(const Report& other) {
    for (auto& kv : other.found_) add(kv.second, kv.second.count);
  }
  const std::map<std::pair<std::string, u32>, Finding>& all() const { return found_; }

 private:
  std::map<std::pair<std::string, u32>, Finding> found_;
};

// The last access of one kind to a byte: workgroup, wave plus one (0: none), the wave's time, instruction.
struct Touch {
  u32 time = 0, inst = 0, group = 0;
  u16 wave = 0, lane = 0;
};
// Two slots, for the last wave and an earlier one, because accesses of several waves may coexist.
struct ByteHistory {
  Touch write, read[2], atomic[2];
};
// Four bytes share one history until an access to some of them separates them.
struct DwordHistory {
  ByteHistory all;
  bool is_split = false;
  u32 epoch = 0;
  std::unique_ptr<std::array<ByteHistory, 4>> bytes;
  // Forgets earlier epochs.
  void enter(u32 now) {
    if (epoch == now) return;
    all = {};
    is_split = false;
    epoch = now;
  }
  std::array<ByteHistory, 4>& split() {
    if (!bytes) bytes = std::make_unique<std::array<ByteHistory, 4>>();
    if (!is_split) bytes->fill(all);
    is_split = true;
    return *bytes;
  }
};
constexpr u32 kPageBytes = 256;
using Page = std::array<DwordHistory, kPageBytes / 4>;
using Pages = std::unordered_map<u64, std::unique_ptr<Page>>;  // by address / kPageBytes

// One workgroup's accesses to a run of bytes of global memory, for comparing workgroups at the end.
struct Span {
  u64 address, size;
  Touch write, read, atomic;
};

struct Buffer {
  u64 base = 0, size = 0;
  std::string name;
  bool readonly = false, initialised = true;
  bool shadowed = false;      // accesses take the slow path
  std::vector<u8> undefined;  // per byte: unwritten since the start
};
}  // namespace emu
