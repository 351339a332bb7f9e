#include "buffers.hpp"

#include <algorithm>

namespace fake_hip {

namespace {

bool joinable(const Registered& last, const Registered& next) {
  return next.base < last.base + last.size && last.readonly && next.readonly &&
         last.initialised == next.initialised;
}

emu::Buffer converted(const Registered& registered) {
  emu::Buffer buffer;
  buffer.base = registered.base;
  buffer.size = registered.size;
  buffer.name = registered.name;
  buffer.readonly = registered.readonly;
  buffer.initialised = registered.initialised;
  return buffer;
}

}  // namespace

void Buffers::add(const Registered& buffer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (buffer.size > 0) all_.push_back(buffer);
}

void Buffers::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.clear();
}

std::vector<emu::Buffer> Buffers::snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Registered> sorted = all_;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.base < b.base; });
  std::vector<Registered> joined;
  for (const Registered& next : sorted) {
    if (joined.empty() || !joinable(joined.back(), next)) {
      joined.push_back(next);
      continue;
    }
    Registered& last = joined.back();
    last.size = std::max(last.base + last.size, next.base + next.size) - last.base;
    if (last.name != next.name) last.name += "+" + next.name;
  }
  std::vector<emu::Buffer> buffers;
  for (const Registered& one : joined) buffers.push_back(converted(one));
  return buffers;
}

}  // namespace fake_hip
