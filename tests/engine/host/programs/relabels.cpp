// relabelled from the command line: relabels FILE GPU OUT writes the file, or prints "error: <what>".
#include "host/registry/relabel.hpp"

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <vector>

int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  const std::vector<unsigned char> bytes{std::istreambuf_iterator<char>(file), {}};
  const fa::Gpu* gpu = fa::find_gpu(arguments[2]);
  if (gpu == nullptr) return 1;
  try {
    const std::vector<unsigned char> found = fa::relabelled({bytes.data(), bytes.size()}, *gpu);
    std::ofstream out(arguments[3], std::ios::binary);
    out.write(reinterpret_cast<const char*>(found.data()), static_cast<std::streamsize>(found.size()));
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
}
