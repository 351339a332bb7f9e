#include "code.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "decode.hpp"
#include "elf.hpp"
#include "failure.hpp"

namespace standin {

namespace {

namespace fs = std::filesystem;

struct Span {
  const unsigned char* data;
  std::size_t size;
};

template <class T>
T at(const void* image, std::size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const unsigned char*>(image) + offset, sizeof value);
  return value;
}

// From the first byte to the end of the last header, segment or section.
Span extent(const void* image) {
  const auto* data = static_cast<const unsigned char*>(image);
  if (data == nullptr || std::memcmp(data, ELFMAG, SELFMAG) != 0 || data[EI_CLASS] != ELFCLASS64) {
    throw Failure(hipErrorInvalidImage, "the image is not a raw 64-bit ELF");
  }
  const auto header = at<Elf64_Ehdr>(image, 0);
  std::size_t end = header.e_shoff + static_cast<std::size_t>(header.e_shnum) * header.e_shentsize;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const auto section = at<Elf64_Shdr>(image, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS) end = std::max<std::size_t>(end, section.sh_offset + section.sh_size);
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

bool same(Span image, const fs::path& file) {
  if (file.extension() != ".co" || fs::file_size(file) != image.size) return false;
  return std::memcmp(content(file).data(), image.data, image.size) == 0;
}

std::string disassembly_of(Span image, const std::string& folder) {
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    if (same(image, entry.path())) return content(fs::path(entry.path()).replace_extension(".s"));
  }
  throw Failure(hipErrorInvalidImage, "no disassembly of this code object (" + std::to_string(image.size) +
                                          " bytes) in FA_STANDIN_DISASSEMBLY, which is '" + folder +
                                          "': disassemble the code objects of this very wheel");
}

const char* name_of(emu::Gfx gfx) {
  switch (gfx) {
    case emu::Gfx::gfx908: return "gfx908";
    case emu::Gfx::gfx942: return "gfx942";
    case emu::Gfx::gfx1030: return "gfx1030";
    case emu::Gfx::gfx1100: return "gfx1100";
  }
  return "?";
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
    const std::string gfx = device_arch.substr(0, device_arch.find(':'));
    if (gfx != name_of(program->gfx)) {
      throw Failure(hipErrorNoBinaryForGpu, "the code object is for " + std::string(name_of(program->gfx)) +
                                                ", the device is " + device_arch);
    }
    emu::decode(disassembly_of(span, folder), *program);
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

}  // namespace standin
