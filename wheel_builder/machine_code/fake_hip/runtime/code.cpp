#include "code.hpp"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#endif

#include "code/decode.hpp"
#include "code/elf.hpp"
#include "device/arch/names.hpp"
#include "failure.hpp"

namespace fake_hip {

namespace {

namespace fs = std::filesystem;

struct Span {
  const unsigned char* data;
  std::size_t size;
};

// The readable memory of this process from `begin` up to the first gap.
#ifdef _WIN32
std::size_t readable_from(std::uintptr_t begin) {
  constexpr DWORD kUnreadable = PAGE_NOACCESS | PAGE_GUARD | PAGE_EXECUTE;
  std::uintptr_t end = begin;
  MEMORY_BASIC_INFORMATION found;
  while (VirtualQuery(reinterpret_cast<const void*>(end), &found, sizeof found) == sizeof found &&
         found.State == MEM_COMMIT && (found.Protect & kUnreadable) == 0) {
    end = reinterpret_cast<std::uintptr_t>(found.BaseAddress) + found.RegionSize;
  }
  return end - begin;
}
#else
std::size_t readable_from(std::uintptr_t begin) {
  std::ifstream maps("/proc/self/maps");
  std::uintptr_t end = begin;
  for (std::string line; std::getline(maps, line);) {
    char* rest;
    const std::uintptr_t first = std::strtoull(line.c_str(), &rest, 16);
    const std::uintptr_t last = std::strtoull(rest + 1, &rest, 16);
    if (first <= end && end < last && rest[1] == 'r') end = last;
  }
  return end - begin;
}
#endif

[[noreturn]] void refuse_image(const std::string& what) { throw Failure(hipErrorInvalidImage, what); }

// Memory at an address from the caller. Headers are read only in mapped memory.
struct Image {
  const unsigned char* data;
  std::size_t readable;

  void require(std::uint64_t offset, std::uint64_t size) const {
    if (offset > readable || size > readable - offset) {
      refuse_image("the image's headers name " + std::to_string(size) + " bytes from " +
                   std::to_string(offset) + "; the memory there ends after " + std::to_string(readable));
    }
  }
  template <class T>
  T at(std::uint64_t offset) const {
    require(offset, sizeof(T));
    T value;
    std::memcpy(&value, data + offset, sizeof value);
    return value;
  }
};

// From the first byte to the end of the last header or section.
Span extent(const void* address) {
  const auto* data = static_cast<const unsigned char*>(address);
  const Image image{data, readable_from(reinterpret_cast<std::uintptr_t>(address))};
  if (image.readable < sizeof(Elf64_Ehdr) || std::memcmp(data, ELFMAG, SELFMAG) != 0 ||
      data[EI_CLASS] != ELFCLASS64) {
    refuse_image("the image is not a raw 64-bit ELF");
  }
  const auto header = image.at<Elf64_Ehdr>(0);
  const std::uint64_t headers = std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  image.require(header.e_shoff, headers);
  std::uint64_t end = header.e_shoff + headers;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto section = image.at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type == SHT_NOBITS) continue;
    image.require(section.sh_offset, section.sh_size);
    end = std::max<std::uint64_t>(end, section.sh_offset + section.sh_size);
  }
  return {data, end};
}

std::string content(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw Failure(hipErrorInvalidImage, "cannot read " + file.string());
  return text.str();
}

constexpr std::size_t kMachineAt = offsetof(Elf64_Ehdr, e_flags);  // its low byte
constexpr std::uint32_t kXnackAny = 0x100, kSrameccAny = 0x400;    // either setting
constexpr const char* kTarget = "amdgcn-amd-amdhsa--";

// The flags of code for any setting of the features in a device's name.
std::uint32_t features_any(std::string_view arch) {
  const auto named = [arch](const char* feature) { return arch.find(feature) != std::string_view::npos; };
  return (named(":xnack") ? kXnackAny : 0) | (named(":sramecc") ? kSrameccAny : 0);
}

// The comparison made by a loader for a device named `arch`. A bare name leaves the GPU's sramecc and xnack
// open.
void require_for(const std::string& arch, const emu::Program& program) {
  const fa::Gpu* gpu = fa::find_gpu(arch);
  const bool bare = arch.find(':') == std::string::npos;
  const std::uint32_t features = bare ? program.flags & (kXnackAny | kSrameccAny) : features_any(arch);
  const bool possible = features != kSrameccAny;  // no GPU has it alone
  const std::string target = kTarget + std::string(fa::without_features(arch));
  if (gpu != nullptr && possible && program.target == target &&
      program.flags == (static_cast<std::uint32_t>(gpu->elf_machine) | features)) {
    return;
  }
  std::ostringstream words;
  words << "the code object has flags 0x" << std::hex << program.flags << " and is for '" << program.target
        << "'; the device is " << arch;
  if (gpu != nullptr) words << ", flags 0x" << (gpu->elf_machine | features_any(arch));
  throw Failure(hipErrorNoBinaryForGpu, words.str());
}

// The image as a compiler wrote it for the GPU whose machine code it is.
std::string under_own_name(Span image, const std::string& target, fa::Gfx code_object) {
  std::string bytes(reinterpret_cast<const char*>(image.data), image.size);
  bytes[kMachineAt] = static_cast<char>(fa::find_gpu(fa::name(code_object))->elf_machine);
  const std::string own = kTarget + std::string(fa::name(code_object));
  const std::size_t at = bytes.find(target);
  if (at != std::string::npos) bytes.replace(at, target.size(), own);
  return bytes;
}

bool same(const std::string& image, const fs::path& file) {
  return file.extension() == ".co" && fs::file_size(file) == image.size() && content(file) == image;
}

std::string disassembly_of(const std::string& image, const std::string& folder) {
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    if (same(image, entry.path())) return content(fs::path(entry.path()).replace_extension(".s"));
  }
  throw Failure(hipErrorInvalidImage, "no disassembly of this code object (" + std::to_string(image.size()) +
                                          " bytes) in FA_FAKE_HIP_DISASSEMBLY, which is '" + folder +
                                          "': disassemble the code objects of this very wheel");
}

std::string first_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(lines.size(), 5); ++i) text += "; " + lines[i];
  return text;
}

}  // namespace

std::unique_ptr<emu::Program> load_code(const void* image, const std::string& device_arch,
                                        const std::string& folder) {
  const Span span = extent(image);
  auto program = std::make_unique<emu::Program>();
  try {
    emu::read_elf(span.data, span.size, *program);
    require_for(device_arch, *program);
    emu::decode(disassembly_of(under_own_name(span, program->target, program->gfx), folder), *program);
  } catch (const emu::Error& error) {
    throw Failure(hipErrorInvalidImage, error.what());
  }
  if (!program->missing.empty()) {
    throw Failure(hipErrorInvalidImage,
                  "instructions that the emulator does not have: " + std::to_string(program->missing.size()) +
                      first_lines(program->missing));
  }
  return program;
}

}  // namespace fake_hip
