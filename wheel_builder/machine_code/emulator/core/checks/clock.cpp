#include "checks/clock.hpp"

#include <algorithm>

namespace emu {
namespace {
bool covers(const Times& a, const Times& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] < b[i]) return false;
  return true;
}
bool covers(const Others& a, const Others& b) {
  for (auto& [group, times] : b) {
    auto it = a.find(group);
    if (it == a.end() || !covers(it->second, times)) return false;
  }
  return true;
}
void join(Times& a, const Times& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::max(a[i], b[i]);
}
}  // namespace

void Clock::start(u32 group, u32 wave) {
  *this = Clock();
  group_ = group;
  wave_ = wave;
  known_[wave] = 1;
}

void Clock::advance() {
  ++known_[wave_];
  told_.reset();
}

bool Clock::knows_other(u32 group, u32 wave, u32 time) const {
  if (!others_) return false;
  auto it = others_->find(group);
  return it != others_->end() && time <= it->second[wave];
}

void Clock::hear_others(const std::shared_ptr<const Others>& what) {
  if (!what || what == others_ || (others_ && covers(*others_, *what))) return;
  if (!others_) {
    others_ = what;
    return;
  }
  auto joined = std::make_shared<Others>(*others_);
  for (auto& [group, times] : *what)
    if (group != group_) join((*joined)[group], times);
  others_ = joined;
}

void Clock::hear(const Told& what) {
  if (!what || what == told_ || what == heard_) return;
  heard_ = what;
  told_.reset();
  hear_others(what->others);
  if (what->group == group_) {
    join(known_, what->own);
  } else {
    auto one = std::make_shared<Others>();
    one->emplace(what->group, what->own);
    hear_others(one);
  }
}

void Clock::hear(const Clock& other) {
  join(known_, other.known_);
  hear_others(other.others_);
}

Told Clock::tell(u64 instruction) {
  told_at_ = instruction;
  if (!told_) told_ = std::make_shared<const Knowledge>(Knowledge{group_, known_, others_});
  return told_;
}
}  // namespace emu
