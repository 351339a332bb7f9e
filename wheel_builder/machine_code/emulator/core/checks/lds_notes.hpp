// Who has accessed LDS since the last barrier, as long as that is enough to know that there is no race.
//
// Histories of bytes (DwordHistory) take long to keep, and hardly any kernel needs them: between two barriers
// the waves of a workgroup read the same dwords, or each writes its own. So a word per dword says which wave
// has read and which has written it, and instructions are only noted. Where two waves meet at a dword, one of
// them with a store, and at the first atomic, the notes become histories, which hold until the next barrier.
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
  // A barrier that orders everything before it, or another workgroup with LDS of this size.
  void forget(size_t dwords);
  // Notes the instruction; false if histories are needed for it. No lane's bytes cross a dword's border,
  // unless they begin at one.
  bool add(const Note& note);
  // What was noted, in order; from then on, and if `for_good` until the next barrier, nothing is noted.
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
