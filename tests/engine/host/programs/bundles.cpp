// find_code_objects from the command line: bundles FILE GFX prints "<offset> <size>" for each, or "error:
// <what>".
// Unreadable memory follows the file's bytes: reading past the end kills the process.
#include "host/registry/bundle.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

unsigned char* before_unreadable_memory(const std::vector<char>& bytes) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t pages = (bytes.size() + page - 1) / page * page;
  void* memory = mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  unsigned char* end = static_cast<unsigned char*>(memory) + pages;
  if (mprotect(end, page, PROT_NONE) != 0) std::abort();
  std::copy(bytes.begin(), bytes.end(), end - bytes.size());
  return end - bytes.size();
}

}  // namespace

int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const fa::Bytes bundle{before_unreadable_memory(bytes), bytes.size()};
  try {
    for (const fa::Bytes& found : fa::find_code_objects(bundle, arguments[2])) {
      std::printf("%zu %zu\n", static_cast<std::size_t>(found.data - bundle.data), found.size);
    }
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
}
