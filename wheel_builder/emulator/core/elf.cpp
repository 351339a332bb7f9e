#include "elf.hpp"

#include <algorithm>
#include <map>

namespace emu {
namespace {
struct Reader {
  const u8* p;
  size_t n;
  template <class T>
  T at(u64 off) const {
    if (off + sizeof(T) > n) throw Error("ELF: truncated at offset " + std::to_string(off));
    T t;
    std::memcpy(&t, p + off, sizeof t);
    return t;
  }
  std::string text(u64 off) const {
    std::string s;
    while (at<char>(off)) s += at<char>(off++);
    return s;
  }
};

// ---- metadata: MessagePack, only the shapes that the notes use
struct Value {
  u64 num = 0;
  std::string str;
  std::vector<Value> list;
  std::map<std::string, Value> map;
  const Value* get(const char* key) const {
    auto it = map.find(key);
    return it == map.end() ? nullptr : &it->second;
  }
};
struct MsgPack {
  const u8* p;
  const u8* end;
  u64 big(int n) {
    u64 v = 0;
    if (p + n > end) throw Error("metadata note: truncated");
    while (n--) v = v << 8 | *p++;
    return v;
  }
  std::string str(u64 n) {
    if (p + n > end) throw Error("metadata note: truncated");
    std::string s(reinterpret_cast<const char*>(p), n);
    p += n;
    return s;
  }
  Value array(u64 n) {
    Value v;
    while (n--) v.list.push_back(value());
    return v;
  }
  Value dict(u64 n) {
    Value v;
    while (n--) {
      Value k = value();
      v.map[k.str] = value();
    }
    return v;
  }
  Value value() {
    Value v;
    u64 t = big(1);
    if (t < 0x80)
      v.num = t;
    else if (t < 0x90)
      return dict(t & 15);
    else if (t < 0xa0)
      return array(t & 15);
    else if (t < 0xc0)
      v.str = str(t & 31);
    else if (t >= 0xe0)
      v.num = static_cast<u64>(static_cast<i64>(static_cast<i8>(t)));
    else
      switch (t) {
        case 0xc0:
        case 0xc2: break;
        case 0xc3: v.num = 1; break;
        case 0xc4:
        case 0xd9: v.str = str(big(1)); break;
        case 0xc5:
        case 0xda: v.str = str(big(2)); break;
        case 0xc6:
        case 0xdb: v.str = str(big(4)); break;
        case 0xcc:
        case 0xd0: v.num = big(1); break;
        case 0xcd:
        case 0xd1: v.num = big(2); break;
        case 0xce:
        case 0xd2: v.num = big(4); break;
        case 0xcf:
        case 0xd3: v.num = big(8); break;
        case 0xdc: return array(big(2));
        case 0xdd: return array(big(4));
        case 0xde: return dict(big(2));
        case 0xdf: return dict(big(4));
        default: throw Error("metadata note: MessagePack type " + std::to_string(t) + " is not known");
      }
    return v;
  }
};

void read_notes(const Reader& r, u64 off, u64 size, Value& meta) {
  u64 end = off + size;
  while (off + 12 <= end) {
    u32 namesz = r.at<u32>(off), descsz = r.at<u32>(off + 4), type = r.at<u32>(off + 8);
    u64 desc = off + 12 + ((namesz + 3) & ~3u);
    if (type == 32 && desc + descsz <= r.n) {
      MsgPack m{r.p + desc, r.p + desc + descsz};
      meta = m.value();
    }
    off = desc + ((descsz + 3) & ~3u);
  }
}

void describe(const Value& meta, KernelInfo& k) {
  const Value* list = meta.get("amdhsa.kernels");
  if (!list) return;
  for (const Value& m : list->list) {
    const Value* sym = m.get(".symbol");
    if (!sym || sym->str != k.name + ".kd") continue;
    auto num = [&](const char* key, u32 other) {
      auto* v = m.get(key);
      return v ? static_cast<u32>(v->num) : other;
    };
    k.wave_size = num(".wavefront_size", 64);
    k.vgprs = num(".vgpr_count", 0);
    k.agprs = num(".agpr_count", 0);
    k.max_threads = num(".max_flat_workgroup_size", 1024);
    const Value* args = m.get(".args");
    if (!args) continue;
    for (const Value& a : args->list) {
      const Value* kind = a.get(".value_kind");
      if (!kind) continue;
      if (kind->str.rfind("hidden_", 0) != 0) {
        const Value* name = a.get(".name");
        k.args.push_back({static_cast<u32>(a.get(".offset")->num), static_cast<u32>(a.get(".size")->num),
                          name ? name->str : "", kind->str});
        continue;
      }
      k.hidden.push_back(
          {kind->str, static_cast<u32>(a.get(".offset")->num), static_cast<u32>(a.get(".size")->num)});
    }
  }
}

Gfx gfx_of(u32 flags) {
  switch (flags & 0xff) {
    case 0x30: return Gfx::gfx908;
    case 0x4c: return Gfx::gfx942;
    case 0x36: return Gfx::gfx1030;
    case 0x41: return Gfx::gfx1100;
  }
  throw Error("ELF: machine number " + std::to_string(flags & 0xff) +
              " is none of gfx908, gfx942, gfx1030, gfx1100");
}

KernelInfo read_descriptor(const Reader& image, const Symbol& kd) {
  KernelInfo k;
  u64 a = kd.address;
  k.name = kd.name.substr(0, kd.name.size() - 3);
  k.lds = image.at<u32>(a);
  k.scratch = image.at<u32>(a + 4);
  k.kernarg = image.at<u32>(a + 8);
  k.entry = a + static_cast<u64>(image.at<i64>(a + 16));
  k.rsrc3 = image.at<u32>(a + 44);
  k.rsrc1 = image.at<u32>(a + 48);
  k.rsrc2 = image.at<u32>(a + 52);
  k.properties = image.at<u16>(a + 56);
  k.preload = image.at<u16>(a + 58);
  k.dynamic_stack = k.properties >> 11 & 1;
  return k;
}

void relocate(const Reader& r, u64 off, u64 size, Program& prog) {
  for (u64 o = off; o + 24 <= off + size; o += 24) {
    u32 type = static_cast<u32>(r.at<u64>(o + 8));
    throw Error("ELF: relocation of type " + std::to_string(type) + " at " + std::to_string(r.at<u64>(o)) +
                " is not supported; only code objects without dynamic relocations can be run");
  }
  (void)prog;
}
}  // namespace

void read_elf(const u8* data, size_t size, Program& prog) {
  Reader r{data, size};
  if (size < 64 ||
      std::memcmp(data,
                  "\x7f"
                  "ELF\2\1",
                  6) != 0 ||
      r.at<u16>(18) != 224)
    throw Error("not an AMDGPU ELF64 file (an offload bundle has to be unbundled first)");
  prog.gfx = gfx_of(r.at<u32>(48));
  u64 phoff = r.at<u64>(32), shoff = r.at<u64>(40);
  Value meta;
  for (int i = 0; i < r.at<u16>(56); ++i) {
    u64 ph = phoff + 56u * static_cast<u64>(i);
    u32 type = r.at<u32>(ph);
    u64 off = r.at<u64>(ph + 8), va = r.at<u64>(ph + 16), filesz = r.at<u64>(ph + 32),
        memsz = r.at<u64>(ph + 40);
    if (type == 1) {
      if (prog.image.size() < va + memsz) prog.image.resize(va + memsz + 256);
      if (off + filesz > size) throw Error("ELF: segment outside the file");
      std::memcpy(prog.image.data() + va, data + off, filesz);
    }
    if (type == 4) read_notes(r, off, filesz, meta);
  }
  Reader image{prog.image.data(), prog.image.size()};
  for (int i = 0; i < r.at<u16>(60); ++i) {
    u64 sh = shoff + 64u * static_cast<u64>(i);
    u32 type = r.at<u32>(sh + 4);
    u64 off = r.at<u64>(sh + 24), bytes = r.at<u64>(sh + 32);
    if (type == 4) relocate(r, off, bytes, prog);
    if (type != 2 && type != 11) continue;
    u64 str = r.at<u64>(shoff + 64u * r.at<u32>(sh + 40) + 24);
    for (u64 o = off; o + 24 <= off + bytes; o += 24) {
      Symbol s{r.text(str + r.at<u32>(o)), r.at<u64>(o + 8), r.at<u64>(o + 16)};
      if (s.name.empty() || r.at<u16>(o + 6) == 0 || r.at<u16>(o + 6) >= 0xff00) continue;
      auto same = [&](const Symbol& t) { return t.name == s.name; };
      if (std::find_if(prog.symbols.begin(), prog.symbols.end(), same) == prog.symbols.end())
        prog.symbols.push_back(s);
    }
  }
  for (const Symbol& s : prog.symbols)
    if (s.name.size() > 3 && s.name.compare(s.name.size() - 3, 3, ".kd") == 0) {
      prog.kernels.push_back(read_descriptor(image, s));
      describe(meta, prog.kernels.back());
    }
  std::sort(prog.symbols.begin(), prog.symbols.end(), [](auto& a, auto& b) { return a.address < b.address; });
}

const KernelInfo* Program::kernel(const std::string& name) const {
  for (auto& k : kernels)
    if (k.name == name) return &k;
  return nullptr;
}

std::string Program::where(u64 address) const {
  const Symbol* best = nullptr;
  for (auto& s : symbols)
    if (s.address <= address && address < s.address + std::max<u64>(s.size, 1) &&
        s.name.find(".kd") == std::string::npos)
      best = &s;
  char buf[64];
  std::snprintf(buf, sizeof buf, "+0x%llx",
                static_cast<unsigned long long>(best ? address - best->address : address));
  return (best ? best->name : std::string("?")) + buf;
}
}  // namespace emu
