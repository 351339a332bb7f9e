// unpack from the command line: unpacks FILE OUT writes a compressed bundle's content and prints the shortest of
// five times in microseconds, or "error: <what>".
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <vector>

#include "host/registry/unpack.hpp"

int main(int, char** arguments) {
  using Clock = std::chrono::steady_clock;
  std::ifstream file(arguments[1], std::ios::binary);
  const std::vector<unsigned char> bytes{std::istreambuf_iterator<char>(file), {}};
  try {
    Clock::duration shortest = Clock::duration::max();
    for (int turn = 0; turn < 5; ++turn) {
      const auto begin = Clock::now();
      const fa::Unpacked unpacked = fa::unpack({bytes.data(), bytes.size()});
      shortest = std::min(shortest, Clock::now() - begin);
      const auto* content = reinterpret_cast<const char*>(unpacked.memory.get());
      if (reinterpret_cast<std::uintptr_t>(content) % fa::kBundleAlignment != 0) return 2;
      std::ofstream(arguments[2], std::ios::binary).write(content, static_cast<std::streamsize>(unpacked.size));
    }
    std::printf("%lld\n", static_cast<long long>(shortest / std::chrono::microseconds(1)));
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
}
