// The C interface, for Python and others. Results and errors are text, or JSON for structured data.
#include <cstdio>
#include <map>
#include <sstream>

#include "code/decode.hpp"
#include "code/elf.hpp"
#include "device/arch/names.hpp"
#include "run/launch.hpp"

using namespace emu;

extern "C" {
struct EmuBuffer {
  u64 base, size;
  const char* name;
  u32 readonly, initialised;
};
struct EmuLaunch {
  const char* kernel;
  u32 grid[3], block[3];
  u32 dynamic_lds, threads, checks, quantum, trace, record, buffer_count;
  u64 kernarg_size, seed, max_instructions;
  f64 max_seconds;
  i64 only_group;
  const void* kernarg;
  const EmuBuffer* buffers;
};
}

namespace {
thread_local std::string g_text;  // result of the last call on this thread
thread_local std::vector<Record> g_recorded;

std::string quote(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<u8>(c) < 32)
      out += ' ';
    else
      out += c;
  }
  return out + '"';
}
const char* class_name(Class c) {
  const char* names[] = {"salu", "valu",    "trans",  "matrix",  "lds",  "vmem",
                         "smem", "scratch", "branch", "barrier", "wait", "end"};
  return names[static_cast<int>(c)];
}

Gfx gfx_of(const std::string& arch) {
  std::string known;
  for (const Gfx gfx : fa::kAllGfx) {
    if (fa::name(gfx) == arch) return gfx;
    known += (known.empty() ? "" : ", ") + std::string(fa::name(gfx));
  }
  throw Error("arch '" + arch + "' is not one of " + known);
}

// Functions, from the disassembly's headings: "0000000000001600 <name>:".
std::vector<Symbol> headings(const std::string& disassembly) {
  std::vector<Symbol> found;
  std::istringstream text(disassembly);
  for (std::string line; std::getline(text, line);) {
    size_t name = line.find(" <");
    if (name != 16 || line.size() < 20 || line.substr(line.size() - 2) != ">:") continue;
    u64 address = std::strtoull(line.c_str(), nullptr, 16);
    if (!found.empty()) found.back().size = address - found.back().address;
    found.push_back({line.substr(18, line.size() - 20), address, ~0ull - address});
  }
  return found;
}

std::string finding_json(const Launch& l, const Finding& f) {
  const Inst& in = l.program->code[f.inst];
  char where[96];
  std::snprintf(where, sizeof where,
                "\"group\": [%u, %u, %u], \"wave\": %d, \"lane\": %d, \"address\": %llu, \"count\": %llu",
                f.group[0], f.group[1], f.group[2], f.wave, f.lane,
                static_cast<unsigned long long>(f.address), static_cast<unsigned long long>(f.count));
  return "{\"kind\": " + quote(f.kind) + ", \"kernel\": " + quote(l.kernel->name) +
         ", \"at\": " + quote(l.program->where(in.address)) +
         ", \"code_address\": " + std::to_string(in.address) +
         ", \"instruction\": " + quote(l.program->lines[in.text]) + ", \"detail\": " + quote(f.detail) +
         ", " + where + "}";
}

std::string arguments_json(const KernelInfo& k) {
  std::string out;
  for (const Argument& a : k.args)
    out += (out.empty() ? "" : ", ") + std::string("[") + quote(a.name) + ", " + quote(a.kind) + ", " +
           std::to_string(a.offset) + ", " + std::to_string(a.size) + "]";
  return out;
}

std::string result_json(const Launch& l, const std::string& error) {
  struct Count {
    u64 n = 0, lanes = 0;
    Class cls = Class::salu;
  };
  std::map<std::string, Count> by_name;
  u64 total = 0;
  for (size_t i = 0; i < l.counts.size(); ++i) {
    if (!l.counts[i]) continue;
    const Inst& in = l.program->code[i];
    std::string name = in.op->name;
    if (in.dual) name += " :: " + std::string(in.dual->op->name);
    Count& c = by_name[name];
    c.n += l.counts[i];
    c.lanes += l.lanes_active[i];
    c.cls = in.op->cls;
    total += l.counts[i];
  }
  std::string out = "{\"error\": " + (error.empty() ? std::string("null") : quote(error)) +
                    ", \"executed\": " + std::to_string(total) + ", \"findings\": [";
  bool first = true;
  for (auto& kv : l.report.all()) {
    out += (first ? "" : ", ") + finding_json(l, kv.second);
    first = false;
  }
  out += "], \"counts\": {";
  first = true;
  for (auto& kv : by_name) {
    out += (first ? "" : ", ") + quote(kv.first) + ": {\"class\": \"" + class_name(kv.second.cls) +
           "\", \"n\": " + std::to_string(kv.second.n) + ", \"lanes\": " + std::to_string(kv.second.lanes) +
           "}";
    first = false;
  }
  return out + "}}";
}
}  // namespace

extern "C" {
#define EMU_API __attribute__((visibility("default")))

// The version of this interface: Python refuses any other.
EMU_API u32 emu_interface() { return 6; }

EMU_API const char* emu_text() { return g_text.c_str(); }

// A loaded code object, or null with the reason in emu_text().
EMU_API void* emu_load(const void* elf, u64 size, const char* disassembly) {
  try {
    auto program = std::make_unique<Program>();
    read_elf(static_cast<const u8*>(elf), size, *program);
    decode(disassembly, *program);
    return program.release();
  } catch (const std::exception& e) {
    g_text = e.what();
    return nullptr;
  }
}
EMU_API void emu_free(void* program) { delete static_cast<Program*>(program); }

// JSON: arch, kernels, unknown instructions, mnemonics in use.
EMU_API const char* emu_describe(const void* handle) {
  const Program& p = *static_cast<const Program*>(handle);
  std::string out = std::string("{\"arch\": \"") + std::string(fa::name(p.gfx)) + "\", \"kernels\": [";
  for (size_t i = 0; i < p.kernels.size(); ++i) {
    const KernelInfo& k = p.kernels[i];
    out += (i ? ", " : "") + std::string("{\"name\": ") + quote(k.name) +
           ", \"lds\": " + std::to_string(k.lds) + ", \"scratch\": " + std::to_string(k.scratch) +
           ", \"kernarg\": " + std::to_string(k.kernarg) + ", \"wave_size\": " + std::to_string(k.wave_size) +
           ", \"vgprs\": " + std::to_string(k.vgprs) + ", \"agprs\": " + std::to_string(k.agprs) +
           ", \"max_threads\": " + std::to_string(k.max_threads) + ", \"arguments\": [" + arguments_json(k) +
           "]}";
  }
  out += "], \"missing\": [";
  for (size_t i = 0; i < p.missing.size(); ++i) out += (i ? ", " : "") + quote(p.missing[i]);
  std::map<std::string, u64> used;
  for (const Inst& in : p.code) {
    ++used[in.op->name];
    if (in.dual) ++used[in.dual->op->name];
  }
  out += "], \"mnemonics\": {";
  bool first = true;
  for (auto& kv : used) {
    out += (first ? "" : ", ") + quote(kv.first) + ": " + std::to_string(kv.second);
    first = false;
  }
  g_text = out + "}}";
  return g_text.c_str();
}

// A line for each unimplemented instruction of a disassembly. Null for an unknown arch, with the reason in
// emu_text().
EMU_API const char* emu_missing(const char* arch, const char* disassembly) {
  try {
    Program p;
    p.gfx = gfx_of(arch);
    p.symbols = headings(disassembly);
    decode(disassembly, p);
    g_text.clear();
    for (auto& m : p.missing) g_text += m + "\n";
    return g_text.c_str();
  } catch (const std::exception& e) {
    g_text = e.what();
    return nullptr;
  }
}

// The table's mnemonics with their classes, a line each.
EMU_API const char* emu_mnemonics() {
  g_text.clear();
  for (auto& n : all_ops()) g_text += n + " " + class_name(find_op(n)->cls) + "\n";
  return g_text.c_str();
}

// A part of a wave's Record in the last recorded launch: 0 executed instructions, 1 LDS instructions. Null
// after the last wave.
EMU_API const u32* emu_recorded(u32 wave, u32 part, u64* size) {
  static const u32 none = 0;
  if (wave >= g_recorded.size()) return nullptr;
  const std::vector<u32>& words = part ? g_recorded[wave].lds : g_recorded[wave].executed;
  *size = words.size();
  return words.empty() ? &none : words.data();
}

// One line per decoded instruction, by index: address in hexadecimal, a space, text.
EMU_API const char* emu_program(const void* handle) {
  const Program& p = *static_cast<const Program*>(handle);
  g_text.clear();
  char address[32];
  for (const Inst& in : p.code) {
    std::snprintf(address, sizeof address, "%llx ", static_cast<unsigned long long>(in.address));
    g_text += address + p.lines[in.text] + "\n";
  }
  return g_text.c_str();
}

// Runs one launch. JSON with error, findings and counts.
EMU_API const char* emu_run(const void* handle, const EmuLaunch* d) {
  const Program& p = *static_cast<const Program*>(handle);
  Launch l;
  std::string error;
  try {
    l.program = &p;
    l.kernel = p.kernel(d->kernel);
    if (!l.kernel) throw Error(std::string("no kernel '") + d->kernel + "' in the code object");
    for (int i = 0; i < 3; ++i) {
      l.grid[i] = d->grid[i];
      l.block[i] = d->block[i];
    }
    l.dynamic_lds = d->dynamic_lds;
    const u8* ka = static_cast<const u8*>(d->kernarg);
    l.kernarg.assign(ka, ka + d->kernarg_size);
    l.options.threads = d->threads;
    l.options.checks = d->checks;
    l.options.quantum = d->quantum ? d->quantum : 256;
    l.options.seed = d->seed;
    l.options.trace = d->trace;
    l.options.record = d->record && d->only_group >= 0;
    l.options.only_group = d->only_group;
    if (d->max_instructions) l.options.max_instructions = d->max_instructions;
    l.options.max_seconds = d->max_seconds;
    for (u32 i = 0; i < d->buffer_count; ++i) {
      const EmuBuffer& b = d->buffers[i];
      Buffer own;
      own.base = b.base;
      own.size = b.size;
      own.name = b.name;
      own.readonly = b.readonly;
      own.initialised = b.initialised;
      l.buffers.push_back(std::move(own));
    }
    run_launch(l);
  } catch (const std::exception& e) {
    error = e.what();
  }
  if (!l.kernel) {
    g_text = "{\"error\": " + quote(error) + ", \"executed\": 0, \"findings\": [], \"counts\": {}}";
    return g_text.c_str();
  }
  g_text = result_json(l, error);
  g_recorded = std::move(l.recorded);
  return g_text.c_str();
}
}
