// Answers of the registry, which is constant: every call asks, and a search compares hundreds of names.
#pragma once

#include <map>
#include <mutex>

namespace fa {

template <typename Key, typename Value>
class Remembered {
 public:
  // The answer for `key`, searched once. Nothing is kept of a search that throws.
  template <typename Search>
  Value of(const Key& key, Search search) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = values_.find(key);
    return found != values_.end() ? found->second : values_.emplace(key, search()).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, Value> values_;
};

}  // namespace fa
