// The metadata note of a code object: the subset of MessagePack in use there. The emulator reads it itself,
// as a HIP runtime does: it runs in processes without wheel_builder.
#pragma once
#include <map>
#include <unordered_map>

#include "code/bytes.hpp"
#include "code/inst.hpp"

namespace emu {
struct Value {
  enum class Kind : u8 { nothing, number, text, list, map };
  Kind kind = Kind::nothing;
  u64 number = 0;
  std::string text;
  std::vector<Value> list;
  std::map<std::string, Value> map;
  const Value* get(const std::string& key) const {
    auto it = map.find(key);
    return it == map.end() ? nullptr : &it->second;
  }
};

Value read_metadata(Bytes note);

// The target according to the metadata, or "".
std::string target_of(const Value& metadata);

// Each kernel's map in the metadata, by the symbol of its descriptor.
std::unordered_map<std::string, const Value*> kernels_of(const Value& metadata);

// Adds the contents of a kernel's map. k.name and k.kernarg must be set before.
void describe(const Value& kernel, Gfx gfx, KernelInfo& k);
}  // namespace emu
