#include "host/registry/unpack.hpp"

#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace fa {

namespace {

// wheel_builder/files/device/packing.py writes it.
struct Header {
  char magic[4];
  std::uint16_t version;
  std::uint16_t method;
  std::uint64_t packed_size;  // with this header
  std::uint64_t size;
  std::uint64_t hash;  // for clang's tools
};
static_assert(sizeof(Header) == 32);

constexpr std::string_view kCompressed = "CCOB";
constexpr std::uint16_t kVersion = 3, kZstd = 1;
constexpr std::uint64_t kMost = 64 << 20;  // an arch's code has 3 MB

Header read_header(Bytes packed) {
  Header header{};
  if (packed.size < sizeof header) damaged("a compressed bundle ends in its header");
  std::memcpy(&header, packed.data, sizeof header);
  const std::string_view magic(header.magic, sizeof header.magic);
  if (magic != kCompressed || header.version != kVersion || header.method != kZstd) {
    damaged("a compressed bundle does not start with clang's mark for version 3 and zstd");
  }
  if (header.packed_size != packed.size) {
    damaged("a compressed bundle of " + std::to_string(packed.size) + " bytes says that it has " +
            std::to_string(header.packed_size));
  }
  if (header.size > kMost) {
    damaged("a compressed bundle says that it holds " + std::to_string(header.size) + " bytes, more than " +
            std::to_string(kMost));
  }
  return header;
}

}  // namespace

Unpacked unpack(Bytes packed) {
  const Header header = read_header(packed);
  const std::size_t size = static_cast<std::size_t>(header.size);
  auto* memory = static_cast<unsigned char*>(::operator new[](size, std::align_val_t{kBundleAlignment}));
  Unpacked unpacked{std::unique_ptr<unsigned char[], FreedPages>(memory), size};
  const std::size_t done =
      ZSTD_decompress(memory, size, packed.data + sizeof header, packed.size - sizeof header);
  if (ZSTD_isError(done)) {
    damaged("a compressed bundle cannot be unpacked (" + std::string(ZSTD_getErrorName(done)) + ")");
  }
  if (done != size) {
    damaged("a compressed bundle holds " + std::to_string(done) + " bytes and says that it holds " +
            std::to_string(size));
  }
  return unpacked;
}

}  // namespace fa
