// The waves with accesses to LDS since the last barrier, sufficient in most cases to exclude a race.
//
// Histories of bytes (DwordHistory) are slow, and rarely needed: between two barriers the waves of a
// workgroup read the same dwords, or each writes its own. So a word per dword names its reading and its
// writing wave, and instructions are only noted. When two waves meet at a dword, one of them with a store,
// and at the first atomic, the notes become histories. These hold until the next barrier.
#pragma once
#include <vector>

#include "types.hpp"

namespace emu {
enum class Mode : u8 { read, write, atomic };

// One instruction's accesses, of `bytes` each, by the lanes of `exec`.
struct Note {
  u32 time, inst;
  u16 wave;  // plus one
  u8 bytes;
  Mode mode;
  u64 exec;
  u32 address[kLanes];
};

class LdsNotes {
 public:
  // A barrier ordering everything before it, or another workgroup with LDS of this size.
  void forget(size_t dwords);
  // Notes the instruction. False if it needs histories. A lane's bytes cross a dword's border only if they
  // begin at one.
  bool add(const Note& note);
  // The notes in order. From then on, and if `for_good` until the next barrier, noting is off.
  const std::vector<Note>& notes() const { return notes_; }
  void taken(bool for_good) {
    notes_.clear();
    exact_ |= for_good;
  }
  bool exact() const { return exact_; }
  bool full() const { return notes_.size() >= kMost; }

 private:
  static constexpr size_t kMost = 4096;  // about a megabyte
  std::vector<u32> who_;                 // epoch << 16 | last writer << 8 | last reader, or kMany
  std::vector<Note> notes_;
  u32 epoch_ = 0;
  bool exact_ = false;
};
}  // namespace emu
