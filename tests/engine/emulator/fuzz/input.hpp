// The parts of an input.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

namespace fuzz {
// The start of a kernel. inputs.py has the same layout.
struct Call {
  std::uint32_t elf;  // bytes of the code object
  std::uint32_t kernel, grid[3], block[3], dynamic_lds, checks, pointers, seed;
  std::int64_t only_group;
};
static_assert(sizeof(Call) == 56, "inputs.py packs it");

struct Parts {
  Call call;
  const std::uint8_t* elf;
  std::size_t elf_size;
  std::string text;
};

inline Parts split(const std::uint8_t* data, std::size_t size) {
  Parts parts{};
  if (size < sizeof(Call)) return parts;
  std::memcpy(&parts.call, data, sizeof parts.call);
  parts.elf = data + sizeof parts.call;
  const std::size_t rest = size - sizeof parts.call;
  parts.elf_size = parts.call.elf < rest ? parts.call.elf : rest;
  parts.text.assign(reinterpret_cast<const char*>(parts.elf) + parts.elf_size, rest - parts.elf_size);
  return parts;
}

inline std::string join(const Call& call, const std::string& elf, const std::string& text) {
  Call head = call;
  head.elf = static_cast<std::uint32_t>(elf.size());
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + elf + text;
}
}  // namespace fuzz
