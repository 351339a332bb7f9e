// Untrusted bytes: every offset and size in them is checked before use.
#pragma once
#include "types.hpp"

namespace emu {
struct Bytes {
  const u8* p;
  u64 n;
  const char* what;  // in messages: "the file"

  bool has(u64 offset, u64 size) const { return offset <= n && size <= n - offset; }
  void require(u64 offset, u64 size, const std::string& part) const {
    if (!has(offset, size))
      throw Error("ELF: " + part + " takes " + std::to_string(size) + " bytes from " +
                  std::to_string(offset) + "; " + what + " has " + std::to_string(n));
  }
  template <class T>
  T at(u64 offset, const char* part) const {
    if (!has(offset, sizeof(T))) require(offset, sizeof(T), part);
    T value;
    std::memcpy(&value, p + offset, sizeof value);
    return value;
  }
};
}  // namespace emu
