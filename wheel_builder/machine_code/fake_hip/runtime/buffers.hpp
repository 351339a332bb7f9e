// Host memory in the role of device memory: kernels may access registered memory only.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "checks/sanitize.hpp"

namespace fake_hip {

struct Registered {
  std::uint64_t base;
  std::uint64_t size;
  std::string name;
  bool readonly;
  bool initialised;
};

class Buffers {
 public:
  void add(const Registered& buffer);
  void clear();

  // For one launch. Overlapping read-only ones (views of one tensor) are joined.
  std::vector<emu::Buffer> snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Registered> all_;
};

}  // namespace fake_hip
