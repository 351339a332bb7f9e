#include "code/elf.hpp"

#include <algorithm>
#include <unordered_set>

#include "code/metadata.hpp"
#include "device/arch/names.hpp"

namespace emu {
namespace {
constexpr u64 kEhdrSize = 64, kPhdrSize = 56, kShdrSize = 64, kSymSize = 24, kRelaSize = 24;
constexpr u32 kLoad = 1, kNote = 4, kSymtab = 2, kRela = 4, kDynsym = 11, kMetadataNote = 32;
constexpr u16 kAmdgpu = 224, kReservedSection = 0xff00;
// Far above any real code object. They limit the memory requested by numbers in a file.
constexpr u64 kMaxImage = 256ull << 20, kMaxNames = 64ull << 20;
constexpr u64 kImageSlack = 256;
const std::string kDescriptorSuffix = ".kd";

// The text at `offset`, up to its zero byte.
std::string text_at(const Bytes& file, u64 offset) {
  file.require(offset, 1, "a name");
  const void* end = std::memchr(file.p + offset, 0, file.n - offset);
  if (!end) throw Error("ELF: the name at " + std::to_string(offset) + " has no end");
  return reinterpret_cast<const char*>(file.p + offset);
}

u32 aligned(u64 size) { return static_cast<u32>(-size & 3); }

// The metadata of the notes in this segment replaces any read before.
void read_notes(const Bytes& file, u64 offset, u64 size, Value& metadata) {
  file.require(offset, size, "a note segment");
  const Bytes notes{file.p + offset, size, "the note segment"};
  for (u64 at = 0; notes.has(at, 12);) {
    u64 name = notes.at<u32>(at, "a note"), bytes = notes.at<u32>(at + 4, "a note");
    u32 type = notes.at<u32>(at + 8, "a note");
    u64 content = at + 12 + name + aligned(name);
    notes.require(content, bytes, "a note");
    if (type == kMetadataNote) metadata = read_metadata({notes.p + content, bytes, "the note"});
    at = content + bytes + aligned(bytes);
  }
}

Gfx gfx_of(u32 flags) {
  const int machine = static_cast<int>(flags & 0xff);
  std::string known;
  for (const fa::Gpu& gpu : fa::kAllGpus) {
    if (gpu.elf_machine == machine) return gpu.code_object;
    known += (known.empty() ? "" : ", ") + std::string(gpu.name);
  }
  throw Error("ELF: machine number " + std::to_string(machine) + " is none of " + known);
}

// Magic, class, byte order, machine and the sizes of table entries.
void check_header(const Bytes& file) {
  const u8 magic[] = {0x7f, 'E', 'L', 'F', 2, 1};
  if (!file.has(0, kEhdrSize) || std::memcmp(file.p, magic, sizeof magic) != 0 ||
      file.at<u16>(18, "the header") != kAmdgpu)
    throw Error("not an AMDGPU ELF64 file (an offload bundle has to be unbundled first)");
  auto entry_size = [&](u64 count_at, u64 size_at, u64 expected, const char* table) {
    u16 found = file.at<u16>(size_at, table);
    if (file.at<u16>(count_at, table) && found != expected)
      throw Error(std::string("ELF: ") + table + " of " + std::to_string(found) + " bytes, expected " +
                  std::to_string(expected));
  };
  entry_size(56, 54, kPhdrSize, "program headers");
  entry_size(60, 58, kShdrSize, "section headers");
}

void load_segment(const Bytes& file, u64 header, Program& prog) {
  u64 offset = file.at<u64>(header + 8, "a segment"), address = file.at<u64>(header + 16, "a segment"),
      in_file = file.at<u64>(header + 32, "a segment"), in_memory = file.at<u64>(header + 40, "a segment");
  file.require(offset, in_file, "a segment");
  if (in_file > in_memory)
    throw Error("ELF: a segment has " + std::to_string(in_file) +
                " bytes in the file, expected at most its " + std::to_string(in_memory) + " in memory");
  if (in_memory > kMaxImage || address > kMaxImage - in_memory)
    throw Error("ELF: a segment of " + std::to_string(in_memory) + " bytes at address " +
                std::to_string(address) + "; the emulator loads up to " + std::to_string(kMaxImage) +
                " bytes");
  if (prog.image.size() < address + in_memory) prog.image.resize(address + in_memory + kImageSlack);
  if (in_file) std::memcpy(prog.image.data() + address, file.p + offset, in_file);
}

Value load_segments(const Bytes& file, Program& prog) {
  Value metadata;
  u64 headers = file.at<u64>(32, "the header");
  u16 count = file.at<u16>(56, "the header");
  file.require(headers, count * kPhdrSize, "the table of program headers");
  for (u64 header = headers; header < headers + count * kPhdrSize; header += kPhdrSize) {
    u32 type = file.at<u32>(header, "a segment");
    if (type == kLoad) load_segment(file, header, prog);
    if (type == kNote)
      read_notes(file, file.at<u64>(header + 8, "a segment"), file.at<u64>(header + 32, "a segment"),
                 metadata);
  }
  return metadata;
}

void refuse_relocations(const Bytes& file, u64 offset, u64 size) {
  file.require(offset, size, "a table of relocations");
  if (size < kRelaSize) return;
  u32 type = static_cast<u32>(file.at<u64>(offset + 8, "a relocation"));
  throw Error("ELF: relocation of type " + std::to_string(type) + " at " +
              std::to_string(file.at<u64>(offset, "a relocation")) +
              " is not supported; only code objects without dynamic relocations can be run");
}

struct SymbolReader {
  const Bytes& file;
  Program& prog;
  std::unordered_set<std::string> seen = {};
  u64 name_bytes = 0;

  // One symbol table, with names from the string table at `names`.
  void table(u64 offset, u64 size, u64 names) {
    file.require(offset, size, "a symbol table");
    for (u64 at = offset; at + kSymSize <= offset + size; at += kSymSize) symbol(at, names);
  }
  void symbol(u64 at, u64 names) {
    u16 section = file.at<u16>(at + 6, "a symbol");
    const bool is_label = file.at<u8>(at + 4, "a symbol") == 0;  // local, without a type: of assembled files
    if (section == 0 || section >= kReservedSection || is_label) return;
    u32 name = file.at<u32>(at, "a symbol");
    file.require(names, name, "a string table");
    Symbol s{text_at(file, names + name), file.at<u64>(at + 8, "a symbol"),
             file.at<u64>(at + 16, "a symbol")};
    // Names may share their ends, so a small file could have gigabytes of them.
    name_bytes += s.name.size();
    if (name_bytes > kMaxNames)
      throw Error("ELF: names of symbols with over " + std::to_string(kMaxNames) + " bytes in all");
    if (!s.name.empty() && seen.insert(s.name).second) prog.symbols.push_back(std::move(s));
  }
};

void read_sections(const Bytes& file, Program& prog) {
  u64 headers = file.at<u64>(40, "the header");
  u16 count = file.at<u16>(60, "the header");
  file.require(headers, count * kShdrSize, "the table of section headers");
  SymbolReader symbols{file, prog};
  std::unordered_set<u32> had;
  for (u64 header = headers; header < headers + count * kShdrSize; header += kShdrSize) {
    u32 type = file.at<u32>(header + 4, "a section"), link = file.at<u32>(header + 40, "a section");
    u64 offset = file.at<u64>(header + 24, "a section"), size = file.at<u64>(header + 32, "a section");
    if (type == kRela) refuse_relocations(file, offset, size);
    if (type != kSymtab && type != kDynsym) continue;
    if (!had.insert(type).second) throw Error("ELF: two symbol tables of one type, expected one");
    if (link >= count)
      throw Error("ELF: a symbol table takes its names from section " + std::to_string(link) +
                  "; the file has " + std::to_string(count));
    symbols.table(offset, size, file.at<u64>(headers + kShdrSize * link + 24, "a section"));
  }
}

bool is_descriptor(const Symbol& s) {
  size_t n = kDescriptorSuffix.size();
  return s.name.size() > n && s.name.compare(s.name.size() - n, n, kDescriptorSuffix) == 0;
}

KernelInfo read_descriptor(const Bytes& image, const Symbol& symbol) {
  const char* part = "a kernel descriptor";
  u64 a = symbol.address;
  image.require(a, 64, part);
  KernelInfo k;
  k.name = symbol.name.substr(0, symbol.name.size() - kDescriptorSuffix.size());
  k.lds = image.at<u32>(a, part);
  k.scratch = image.at<u32>(a + 4, part);
  k.kernarg = image.at<u32>(a + 8, part);
  k.entry = a + image.at<u64>(a + 16, part);
  k.rsrc3 = image.at<u32>(a + 44, part);
  k.rsrc1 = image.at<u32>(a + 48, part);
  k.rsrc2 = image.at<u32>(a + 52, part);
  k.properties = image.at<u16>(a + 56, part);
  k.preload = image.at<u16>(a + 58, part);
  k.dynamic_stack = k.properties >> 11 & 1;
  return k;
}
}  // namespace

void read_elf(const u8* data, size_t size, Program& prog) {
  const Bytes file{data, size, "the file"};
  check_header(file);
  prog.flags = file.at<u32>(48, "the header");
  prog.gfx = gfx_of(prog.flags);
  const Value metadata = load_segments(file, prog);
  prog.target = target_of(metadata);
  read_sections(file, prog);
  const auto kernels = kernels_of(metadata);
  const Bytes image{prog.image.data(), prog.image.size(), "the loaded image"};
  for (const Symbol& s : prog.symbols) {
    if (!is_descriptor(s)) continue;
    prog.kernels.push_back(read_descriptor(image, s));
    auto described = kernels.find(s.name);
    if (described != kernels.end()) describe(*described->second, prog.gfx, prog.kernels.back());
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
    if (s.address <= address && address - s.address < std::max<u64>(s.size, 1) &&
        s.name.find(kDescriptorSuffix) == std::string::npos)
      best = &s;
  char buf[64];
  std::snprintf(buf, sizeof buf, "+0x%llx",
                static_cast<unsigned long long>(best ? address - best->address : address));
  return (best ? best->name : std::string("?")) + buf;
}
}  // namespace emu
