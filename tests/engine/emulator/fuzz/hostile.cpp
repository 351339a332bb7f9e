// A libFuzzer target: loads an untrusted code object and launches a kernel of it.
//
// An input is a Call, then `elf` bytes of code object, then the text of its disassembly (inputs.py writes
// them).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "code/decode.hpp"
#include "code/elf.hpp"
#include "input.hpp"
#include "run/launch.hpp"
#include "run/setup.hpp"

using namespace fuzz;

namespace {
// Kernels find this buffer wherever they look for a pointer argument.
alignas(64) emu::u8 memory[4096];
constexpr emu::u64 kManyGroups = 8;

void add_buffer(emu::Launch& launch) {
  emu::Buffer buffer;
  buffer.base = reinterpret_cast<emu::u64>(memory);
  buffer.size = sizeof memory;
  buffer.name = "memory";
  launch.buffers.push_back(buffer);
}

// Cached: decoding takes longer than everything else, and inputs leave the text as it is.
emu::Program& decoded(emu::Gfx gfx, const std::string& text) {
  static auto& known = *new std::map<std::pair<emu::Gfx, std::string>, std::unique_ptr<emu::Program>>;
  std::unique_ptr<emu::Program>& program = known[{gfx, text}];
  if (!program) {
    auto fresh = std::make_unique<emu::Program>();
    fresh->gfx = gfx;
    emu::decode(text, *fresh);
    program = std::move(fresh);
  }
  return *program;
}

// A program of this code object, with the instructions of this text.
emu::Program& loaded(const emu::u8* elf, std::size_t size, const std::string& text) {
  emu::Program read;
  emu::read_elf(elf, size, read);
  emu::Program& program = decoded(read.gfx, text);
  program.kernels = std::move(read.kernels);
  program.symbols = std::move(read.symbols);
  program.image = std::move(read.image);
  return program;
}

void start(const emu::Program& program, const Call& call) {
  emu::Launch launch;
  launch.program = &program;
  launch.kernel = &program.kernels[call.kernel % program.kernels.size()];
  std::copy(call.grid, call.grid + 3, launch.grid);
  std::copy(call.block, call.block + 3, launch.block);
  launch.dynamic_lds = call.dynamic_lds;
  launch.options.checks = call.checks;
  launch.options.seed = call.seed;
  launch.options.only_group = call.only_group;
  launch.options.max_instructions = 200;
  launch.options.max_seconds = 0.01;
  add_buffer(launch);
  const emu::u64 pointer = launch.buffers[0].base;
  launch.kernarg.resize(sizeof pointer * (call.pointers % 8));
  for (emu::u64 at = 0; at < launch.kernarg.size(); at += sizeof pointer)
    std::memcpy(launch.kernarg.data() + at, &pointer, sizeof pointer);
  emu::check_launch(launch);
  // One workgroup tests as much as many, and is faster.
  const emu::u64 groups = emu::u64{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  if (groups > kManyGroups && launch.options.only_group < 0) launch.options.only_group = 0;
  emu::run_launch(launch);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Parts parts = split(data, size);
  if (!parts.elf) return 0;
  try {
    // An exact copy: the address sanitizer knows its end.
    const std::unique_ptr<emu::u8[]> elf(new emu::u8[parts.elf_size]);
    std::memcpy(elf.get(), parts.elf, parts.elf_size);
    const emu::Program& program = loaded(elf.get(), parts.elf_size, parts.text);
    if (!program.kernels.empty()) start(program, parts.call);
  } catch (const emu::Error& error) {
    // A refusal must have a text. The emulator may throw no other exception.
    if (std::strlen(error.what()) < 10) std::abort();
    if (std::getenv("FUZZ_TELL")) std::fprintf(stderr, "refused: %s\n", error.what());
  }
  return 0;
}
