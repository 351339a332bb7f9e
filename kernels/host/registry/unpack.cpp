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
  std::uint64_t hash;  // of the content
};
static_assert(sizeof(Header) == 32);

constexpr std::string_view kCompressed = "CCOB";
constexpr std::uint16_t kVersion = 3, kZstd = 1, kZstdWithBase = 2;
constexpr std::uint64_t kMost = 64 << 20;  // an arch's code has 3 MB

Header read_header(Bytes packed) {
  Header header{};
  if (packed.size < sizeof header) damaged("a compressed bundle ends in its header");
  std::memcpy(&header, packed.data, sizeof header);
  const std::string_view magic(header.magic, sizeof header.magic);
  const bool known = header.method == kZstd || header.method == kZstdWithBase;
  if (magic != kCompressed || header.version != kVersion || !known) {
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

struct FreedContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

// `base`: what the frame refers to as if it stood before its own content.
Unpacked unpack_frame(Bytes frame, std::uint64_t content_size, Bytes base) {
  const std::size_t size = static_cast<std::size_t>(content_size);
  auto* memory = static_cast<unsigned char*>(::operator new[](size, std::align_val_t{kBundleAlignment}));
  Unpacked unpacked{std::unique_ptr<unsigned char[], FreedPages>(memory), size};
  const std::unique_ptr<ZSTD_DCtx, FreedContext> context(ZSTD_createDCtx());
  if (context == nullptr) throw std::bad_alloc();
  const std::size_t done =
      ZSTD_decompress_usingDict(context.get(), memory, size, frame.data, frame.size, base.data, base.size);
  if (ZSTD_isError(done)) {
    damaged("a compressed bundle cannot be unpacked (" + std::string(ZSTD_getErrorName(done)) + ")");
  }
  if (done != size) {
    damaged("a compressed bundle holds " + std::to_string(done) + " bytes and says that it holds " +
            std::to_string(size));
  }
  return unpacked;
}

Bytes behind(Bytes packed, std::size_t size) {
  if (packed.size < size) damaged("a compressed bundle ends in its header");
  return {packed.data + size, packed.size - size};
}

// The content with this hash, of a bundle without a base.
Unpacked unpack_base(std::uint64_t hash, const std::vector<Bytes>& others) {
  for (const Bytes& other : others) {
    const Header header = read_header(other);
    if (header.hash != hash || header.method != kZstd) continue;
    return unpack_frame(behind(other, sizeof header), header.size, {nullptr, 0});
  }
  damaged("a compressed bundle needs another one, and none has its hash");
}

}  // namespace

Unpacked unpack(Bytes packed, const std::vector<Bytes>& others) {
  const Header header = read_header(packed);
  const Bytes rest = behind(packed, sizeof header);
  if (header.method == kZstd) return unpack_frame(rest, header.size, {nullptr, 0});
  std::uint64_t hash = 0;  // of the base
  const Bytes frame = behind(rest, sizeof hash);
  std::memcpy(&hash, rest.data, sizeof hash);
  return unpack_frame(frame, header.size, unpack_base(hash, others).bytes());
}

}  // namespace fa
