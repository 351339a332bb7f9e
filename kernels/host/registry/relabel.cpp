#include "host/registry/relabel.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace fa {

namespace {

constexpr std::size_t kHeaderBytes = 64;  // size of a 64-bit ELF header
constexpr std::size_t kMachineAt = 48;    // offset of the low byte of its e_flags
constexpr std::string_view kTarget = "amdgcn-amd-amdhsa--";

// MessagePack's text of up to 31 bytes: its length is in the byte before.
std::string packed(const std::string& text) { return static_cast<char>(0xa0 + text.size()) + text; }

// The metadata's key and value.
std::string target_entry(std::string_view gfx) {
  return packed("amdhsa.target") + packed(std::string(kTarget) + std::string(gfx));
}

}  // namespace

std::vector<unsigned char> relabelled(Bytes code, const Gpu& gpu) {
  const Gpu& own = *find_gpu(name(gpu.code_object));
  const std::string before = target_entry(own.name), after = target_entry(gpu.name);
  std::vector<unsigned char> bytes(code.data, code.data + code.size);
  if (bytes.size() < kHeaderBytes || bytes[kMachineAt] != own.elf_machine) {
    damaged("the header of a code object does not say that it is for " + std::string(own.name));
  }
  const auto same = [](unsigned char a, char b) { return a == static_cast<unsigned char>(b); };
  const auto found = std::search(bytes.begin(), bytes.end(), before.begin(), before.end(), same);
  if (found == bytes.end() ||
      std::search(found + 1, bytes.end(), before.begin(), before.end(), same) != bytes.end()) {
    damaged("the metadata of a code object does not say once that it is for " + std::string(own.name));
  }
  bytes[kMachineAt] = static_cast<unsigned char>(gpu.elf_machine);
  std::copy(after.begin(), after.end(), found);
  return bytes;
}

}  // namespace fa
