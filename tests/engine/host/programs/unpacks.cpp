// unpack from the command line: unpacks OUT FILE [OTHERS] writes the content of FILE, a compressed bundle,
// and prints the least of five times of the processor in microseconds, or "error: <what>". OTHERS are bundles
// that it may need.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>
#include <vector>

#include "host/registry/unpack.hpp"

int main(int count, char** arguments) {
  std::vector<std::vector<unsigned char>> read;
  for (int number = 2; number < count; ++number) {
    std::ifstream file(arguments[number], std::ios::binary);
    read.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::vector<fa::Bytes> others;
  for (const auto& bytes : read) others.push_back({bytes.data(), bytes.size()});
  const fa::Bytes packed = others.front();
  others.erase(others.begin());
  try {
    double least = 1e9;
    for (int turn = 0; turn < 5; ++turn) {
      const std::clock_t begin = std::clock();
      const fa::Unpacked unpacked = fa::unpack(packed, others);
      least = std::min(least, double(std::clock() - begin) / CLOCKS_PER_SEC);
      const auto* content = reinterpret_cast<const char*>(unpacked.memory.get());
      if (reinterpret_cast<std::uintptr_t>(content) % fa::kBundleAlignment != 0) return 2;
      std::ofstream(arguments[1], std::ios::binary)
          .write(content, static_cast<std::streamsize>(unpacked.size));
    }
    std::printf("%.0f\n", 1e6 * least);
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
}
