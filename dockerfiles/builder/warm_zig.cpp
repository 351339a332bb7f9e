// Compiled once for the builder image, so zig's C++ library for the target is in the image's cache. Building
// it takes over a minute, the host library then takes seconds.
#include <exception>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

extern "C" __attribute__((visibility("default"))) int warm_zig(int n) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unordered_map<std::string, std::vector<int>> map;
  std::ostringstream text;
  try {
    map[std::to_string(n)].push_back(n);
    text << map.at("1").size();
  } catch (const std::exception& error) {
    text << error.what();
  }
  return static_cast<int>(text.str().size());
}
