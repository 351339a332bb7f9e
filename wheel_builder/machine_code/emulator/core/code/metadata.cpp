#include "code/metadata.hpp"

namespace emu {
namespace {
// Real notes have seven levels. Each takes a frame of this recursive reader.
constexpr int kMaxDepth = 32;

[[noreturn]] void refuse(const std::string& what) { throw Error("metadata note: " + what); }

struct MsgPack {
  const u8* p;
  const u8* end;
  int depth = 0;

  void require(u64 size) const {
    u64 left = static_cast<u64>(end - p);
    if (size > left)
      refuse("truncated: " + std::to_string(size) + " more bytes expected, found " + std::to_string(left));
  }
  u64 big(u32 bytes) {
    require(bytes);
    u64 value = 0;
    while (bytes--) value = value << 8 | *p++;
    return value;
  }
  Value number(u64 value) const {
    Value v;
    v.kind = Value::Kind::number;
    v.number = value;
    return v;
  }
  Value text(u64 size) {
    require(size);
    Value v;
    v.kind = Value::Kind::text;
    v.text.assign(reinterpret_cast<const char*>(p), size);
    p += size;
    return v;
  }
  Value array(u64 count) {
    require(count);
    Value v;
    v.kind = Value::Kind::list;
    while (count--) v.list.push_back(value());
    return v;
  }
  Value dict(u64 count) {
    require(2 * count);
    Value v;
    v.kind = Value::Kind::map;
    while (count--) {
      Value key = value();
      if (key.kind != Value::Kind::text) refuse("a key that is no text");
      v.map[key.text] = value();
    }
    return v;
  }
  Value value() {
    if (++depth > kMaxDepth) refuse("nested deeper than " + std::to_string(kMaxDepth) + " levels");
    Value v = any(big(1));
    --depth;
    return v;
  }
  Value any(u64 type) {
    if (type < 0x80) return number(type);
    if (type < 0x90) return dict(type & 15);
    if (type < 0xa0) return array(type & 15);
    if (type < 0xc0) return text(type & 31);
    if (type >= 0xe0) return number(static_cast<u64>(static_cast<i64>(static_cast<i8>(type))));
    switch (type) {
      case 0xc0: return {};
      case 0xc2: return number(0);
      case 0xc3: return number(1);
      case 0xc4:
      case 0xd9: return text(big(1));
      case 0xc5:
      case 0xda: return text(big(2));
      case 0xc6:
      case 0xdb: return text(big(4));
      case 0xcc:
      case 0xd0: return number(big(1));
      case 0xcd:
      case 0xd1: return number(big(2));
      case 0xce:
      case 0xd2: return number(big(4));
      case 0xcf:
      case 0xd3: return number(big(8));
      case 0xdc: return array(big(2));
      case 0xdd: return array(big(4));
      case 0xde: return dict(big(2));
      case 0xdf: return dict(big(4));
    }
    refuse("MessagePack type " + std::to_string(type) + " is not known");
  }
};

const char* kind_name(Value::Kind kind) {
  const char* names[] = {"nothing", "a number", "text", "a list", "a map"};
  return names[static_cast<int>(kind)];
}

// map[key], or null if it is missing. `owner` names the map in messages.
const Value* optional(const Value& map, const char* key, Value::Kind kind, const std::string& owner) {
  const Value* v = map.get(key);
  if (v && v->kind != kind)
    refuse(owner + ": " + key + ": expected " + kind_name(kind) + ", found " + kind_name(v->kind));
  return v;
}

u32 number_of(const Value& v, const char* key, const std::string& owner) {
  if (v.number > 0xffffffffu)
    refuse(owner + ": " + key + ": expected less than 2^32, found " + std::to_string(v.number));
  return static_cast<u32>(v.number);
}

u32 number_or(const Value& map, const char* key, u32 otherwise, const std::string& owner) {
  const Value* v = optional(map, key, Value::Kind::number, owner);
  return v ? number_of(*v, key, owner) : otherwise;
}

u32 required_number(const Value& map, const char* key, const std::string& owner) {
  const Value* v = optional(map, key, Value::Kind::number, owner);
  if (!v) refuse(owner + ": has no " + key);
  return number_of(*v, key, owner);
}

void add_argument(const Value& arg, KernelInfo& k, const std::string& owner) {
  const Value* kind = optional(arg, ".value_kind", Value::Kind::text, owner);
  if (!kind) return;
  u32 offset = required_number(arg, ".offset", owner), size = required_number(arg, ".size", owner);
  if (offset > k.kernarg || size > k.kernarg - offset)
    refuse(owner + ": " + std::to_string(size) + " bytes at " + std::to_string(offset) +
           " are outside the argument segment of " + std::to_string(k.kernarg) + " bytes");
  if (kind->text.rfind("hidden_", 0) == 0) {
    k.hidden.push_back({kind->text, offset, size});
    return;
  }
  const Value* name = optional(arg, ".name", Value::Kind::text, owner);
  k.args.push_back({offset, size, name ? name->text : "", kind->text});
}
}  // namespace

Value read_metadata(Bytes note) {
  MsgPack reader{note.p, note.p + note.n};
  return reader.value();
}

std::string target_of(const Value& metadata) {
  const Value* target = optional(metadata, "amdhsa.target", Value::Kind::text, "amdhsa");
  return target ? target->text : "";
}

std::unordered_map<std::string, const Value*> kernels_of(const Value& metadata) {
  std::unordered_map<std::string, const Value*> found;
  const Value* list = optional(metadata, "amdhsa.kernels", Value::Kind::list, "amdhsa");
  if (!list) return found;
  for (const Value& kernel : list->list) {
    const Value* symbol = optional(kernel, ".symbol", Value::Kind::text, "a kernel");
    if (symbol) found.emplace(symbol->text, &kernel);
  }
  return found;
}

void describe(const Value& m, Gfx gfx, KernelInfo& k) {
  std::string owner = "kernel '" + k.name + "'";
  bool only_64 = fa::traits(gfx).wave == 64;
  k.wave_size = number_or(m, ".wavefront_size", 64, owner);
  if (k.wave_size != 64 && (k.wave_size != 32 || only_64))
    refuse(owner + ": .wavefront_size: expected " + (only_64 ? "64" : "32 or 64") + ", found " +
           std::to_string(k.wave_size));
  k.vgprs = number_or(m, ".vgpr_count", 0, owner);
  k.agprs = number_or(m, ".agpr_count", 0, owner);
  k.max_threads = number_or(m, ".max_flat_workgroup_size", 1024, owner);
  // A descriptor may leave the size of its arguments open: it serves prefetching.
  if (!k.kernarg) k.kernarg = number_or(m, ".kernarg_segment_size", 0, owner);
  const Value* args = optional(m, ".args", Value::Kind::list, owner);
  if (!args) return;
  for (size_t i = 0; i < args->list.size(); ++i)
    add_argument(args->list[i], k, owner + ", argument " + std::to_string(i));
}
}  // namespace emu
