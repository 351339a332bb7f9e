// unpack from the command line: unpacks FILE OUT writes a compressed bundle's content and prints the least of
// five times of the processor in microseconds, or "error: <what>".
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>
#include <vector>

#include "host/registry/unpack.hpp"

int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  const std::vector<unsigned char> bytes{std::istreambuf_iterator<char>(file), {}};
  try {
    double least = 1e9;
    for (int turn = 0; turn < 5; ++turn) {
      const std::clock_t begin = std::clock();
      const fa::Unpacked unpacked = fa::unpack({bytes.data(), bytes.size()});
      least = std::min(least, double(std::clock() - begin) / CLOCKS_PER_SEC);
      const auto* content = reinterpret_cast<const char*>(unpacked.memory.get());
      if (reinterpret_cast<std::uintptr_t>(content) % fa::kBundleAlignment != 0) return 2;
      std::ofstream(arguments[2], std::ios::binary)
          .write(content, static_cast<std::streamsize>(unpacked.size));
    }
    std::printf("%.0f\n", 1e6 * least);
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
}
