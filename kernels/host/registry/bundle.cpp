#include "host/registry/bundle.hpp"

#include <cstdint>
#include <cstring>
#include <string_view>

#include "host/types/error.hpp"

namespace fa {

namespace {

constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::string_view kTarget = "hipv4-amdgcn-amd-amdhsa--";

// Reads front to back, within the bounds.
class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size - position_) damaged("its list of code objects ends early");
    const char* begin = reinterpret_cast<const char*>(bytes_.data) + position_;
    position_ += size;
    return {begin, static_cast<std::size_t>(size)};
  }

  std::uint64_t take_u64() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

 private:
  Bytes bytes_;
  std::size_t position_ = 0;
};

Bytes part(Bytes bundle, std::uint64_t offset, std::uint64_t size) {
  if (offset > bundle.size || size > bundle.size - offset)
    damaged("a code object lies outside of its bundle");
  return {bundle.data + offset, static_cast<std::size_t>(size)};
}

}  // namespace

void damaged(const std::string& how) {
  throw Error(FA_INTERNAL, "the device code in libflash_attn_rocm.so is damaged: " + how +
                               "\n  next: install the wheel again, with the command that you installed it "
                               "with and --force-reinstall");
}

namespace {

Bytes find_code_object(Bytes bundle, const std::string& gfx) {
  const std::string wanted = std::string(kTarget) + gfx;
  Reader reader(bundle);
  if (reader.take(kMagic.size()) != kMagic) damaged("a bundle does not start with clang's mark");
  for (std::uint64_t left = reader.take_u64(); left > 0; --left) {
    const std::uint64_t offset = reader.take_u64();
    const std::uint64_t size = reader.take_u64();
    if (reader.take(reader.take_u64()) == wanted) return part(bundle, offset, size);
  }
  damaged("a bundle has no code object for " + gfx + ", which the registry names");
}

}  // namespace

std::vector<Bytes> find_code_objects(Bytes bundles, const std::string& gfx) {
  std::vector<Bytes> found;
  for (std::size_t start = 0; start < bundles.size;) {
    const Bytes code = find_code_object({bundles.data + start, bundles.size - start}, gfx);
    found.push_back(code);
    const std::size_t end = static_cast<std::size_t>(code.data - bundles.data) + code.size;
    const std::size_t next = (end + kBundleAlignment - 1) / kBundleAlignment * kBundleAlignment;
    if (next <= start) damaged("a code object lies before its bundle's list");
    start = next;
  }
  return found;
}

}  // namespace fa
