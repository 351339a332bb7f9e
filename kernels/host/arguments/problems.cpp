#include "host/arguments/problems.hpp"

#include <algorithm>
#include <vector>

#include "device/call/params.hpp"
#include "host/registry/registry.hpp"
#include "host/types/error.hpp"

namespace fa {

namespace {

// As in PyTorch: every tensor without elements is contiguous, and a dimension of one may have any stride.
bool contiguous(const fa_tensor& t) {
  bool dense = true;
  std::int64_t elements = 1;
  for (int i = t.dims - 1; i >= 0; --i) {
    dense = dense && (t.size[i] == 1 || t.stride[i] == elements);
    elements *= t.size[i];
  }
  return dense || elements == 0;
}

// Whether the first and last element of a non-empty tensor lie within 64-bit offsets and a machine's memory.
bool addressable(const fa_tensor& t) {
  constexpr std::int64_t kMost = std::int64_t{1} << 46;
  bool good = true;
  for (int i = 0; i < t.dims; ++i) {
    std::int64_t offset = 0;
    good = good && !__builtin_mul_overflow(t.size[i] - 1, t.stride[i], &offset);
    good = good && offset >= -kMost && offset <= kMost;
  }
  return good;
}

}  // namespace

const char* dtype_name(std::int32_t dtype) {
  switch (dtype) {
    case FA_FP16: return "fp16";
    case FA_BF16: return "bf16";
    case FA_FP32: return "fp32";
    case FA_INT32: return "int32";
    case FA_INT64: return "int64";
    case FA_BOOL: return "bool";
    default: return "another dtype";
  }
}

std::string words(const Shape& sizes) {
  std::vector<std::string> parts;
  for (const std::int64_t size : sizes) parts.push_back(std::to_string(size));
  return "(" + joined(parts) + ")";
}

Shape shape(const fa_tensor& tensor) { return Shape(tensor.size, tensor.size + tensor.dims); }

bool aligned(const fa_tensor& t) {
  const std::int64_t row = t.stride[t.dims - 3];  // rows; heads and their elements follow
  bool good =
      reinterpret_cast<std::uintptr_t>(t.data) % (2 * kAlignedElements) == 0 && t.stride[t.dims - 1] == 1;
  for (int i = 0; i < t.dims - 1; ++i) good = good && t.stride[i] % kAlignedElements == 0;
  return good && row >= 0 && row < kMaxRowStride;
}

void Problems::expect_dims(const Named& named, int dims) {
  add_unless(named.tensor.dims == dims, [&] {
    return std::string(named.name) + ": expected " + std::to_string(dims) + " dimensions, got shape " +
           words(shape(named.tensor));
  });
}

void Problems::expect_dtype(const Named& named, std::int32_t dtype) {
  add_unless(named.tensor.dtype == dtype, [&] {
    return std::string(named.name) + ": expected dtype " + dtype_name(dtype) + ", got " +
           dtype_name(named.tensor.dtype);
  });
}

void Problems::expect_shape(const Named& named, const Shape& sizes) {
  add_unless(shape(named.tensor) == sizes, [&] {
    return std::string(named.name) + ": expected shape " + words(sizes) + ", got shape " +
           words(shape(named.tensor));
  });
}

void Problems::expect_device(const Named& named, int device) {
  add_unless(named.tensor.device == device, [&] {
    return std::string(named.name) + ": expected device " + std::to_string(device) + " like q, got " +
           std::to_string(named.tensor.device);
  });
}

void Problems::expect_at_most(const char* what, std::int64_t value, std::int64_t most) {
  add_unless(value <= most, [&] {
    return std::string(what) + ": expected at most " + std::to_string(most) + ", got " +
           std::to_string(value);
  });
}

void Problems::expect_contiguous(const Named& named) {
  add_unless(contiguous(named.tensor),
             [&] { return std::string(named.name) + ": expected a contiguous tensor"; });
}

void Problems::expect_elements(const Named& named, std::uintptr_t bytes) {
  const fa_tensor& t = named.tensor;
  const int last = t.dims - 1;
  // The stride of a dimension of one is never used.
  add_unless(t.size[last] <= 1 || t.stride[last] == 1,
             [&] { return std::string(named.name) + ": expected a contiguous last dimension"; });
  add_unless(reinterpret_cast<std::uintptr_t>(t.data) % bytes == 0, [&] {
    return std::string(named.name) + ": expected an address that is a multiple of its elements' " +
           std::to_string(bytes) + " bytes";
  });
}

void Problems::expect_own_memory(const Named& named) {
  const fa_tensor& t = named.tensor;
  bool own = true;
  for (int i = 0; i < t.dims; ++i) own = own && (t.size[i] <= 1 || t.stride[i] != 0);
  add_unless(
      own, [&] { return std::string(named.name) + ": expected memory for each element, got a stride of 0"; });
}

void Problems::expect_well_formed(const Named& named) {
  const fa_tensor& t = named.tensor;
  if (t.dims == 0) return;  // most optional ones are absent, and every launch waits for the checks
  if (t.dims < 0 || t.dims > FA_MAX_DIMS) {
    return add_unless(false, [&] {
      return std::string(named.name) + ": expected 0 to " + std::to_string(FA_MAX_DIMS) +
             " dimensions, got " + std::to_string(t.dims);
    });
  }
  const std::int64_t least = *std::min_element(t.size, t.size + t.dims);
  if (least < 0) {
    return add_unless(false, [&] {
      return std::string(named.name) + ": expected sizes of at least 0, got shape " + words(shape(t));
    });
  }
  const bool empty = least == 0;
  add_unless(empty || addressable(t), [&] {
    return std::string(named.name) + ": expected elements at most 2^46 apart, got shape " + words(shape(t)) +
           " with strides " + words(Shape(t.stride, t.stride + t.dims));
  });
  add_unless(empty || t.data != nullptr,
             [&] { return std::string(named.name) + ": expected the address of its elements, got null"; });
}

void Problems::raise_if_any(const char* function) const {
  if (text_.empty()) return;
  throw Error(FA_INVALID, "flash_attn_rocm::" + std::string(function) + " cannot use its arguments:" + text_);
}

}  // namespace fa
