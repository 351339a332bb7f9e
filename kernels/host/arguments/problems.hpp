// Collects the problems of a call: each argument by name, expected and given.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "host/types/fa_types.h"

namespace fa {

#include "generated/host/expected.inc"

inline constexpr std::int64_t kMaxGridYZ = 65535;  // HIP's limit for the grid's second and third dimension

// Whether an optional argument is present.
inline bool given(const fa_tensor& tensor) { return tensor.dims > 0; }

struct Named {
  const char* name;
  const fa_tensor& tensor;
};

// Sizes of at most FA_MAX_DIMS dimensions, in place: every launch waits for the checks.
class Shape {
 public:
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(sizes.begin(), sizes.end()) {}
  Shape(const std::int64_t* first, const std::int64_t* last) : dims_(last - first) {
    std::copy(first, last, sizes_);
  }

  const std::int64_t* begin() const { return sizes_; }
  const std::int64_t* end() const { return sizes_ + dims_; }
  std::int64_t& operator[](int i) { return sizes_[i]; }
  std::int64_t& front() { return sizes_[0]; }
  std::int64_t& back() { return sizes_[dims_ - 1]; }
  void push_back(std::int64_t size) { sizes_[dims_++] = size; }

  friend bool operator==(const Shape& a, const Shape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::int64_t sizes_[FA_MAX_DIMS] = {};
  std::ptrdiff_t dims_;
};

const char* dtype_name(std::int32_t dtype);

// Whether elements are codes of 8 bits.
constexpr bool is_coded(std::int32_t dtype) { return dtype >= FA_E4M3FN && dtype <= FA_INT8; }

std::string words(const Shape& sizes);  // "(2, 128)"
Shape shape(const fa_tensor& tensor);

// Whether the kernels for one head dim can read these rows of heads. They read 16-byte units, a tile of rows
// at a time, with 32-bit offsets.
bool aligned(const fa_tensor& tensor);

class Problems {
 public:
  // `text` is called only on failure: most calls are right, and every launch waits for the checks.
  template <class Text>
  void add_unless(bool good, Text text) {
    if (!good) text_ += "\n  - " + text();
  }

  void expect_dims(const Named& named, int dims);
  void expect_dtype(const Named& named, std::int32_t dtype);
  void expect_shape(const Named& named, const Shape& sizes);
  void expect_device(const Named& named, const Named& like);
  void expect_at_most(const char* what, std::int64_t value, std::int64_t most);
  void expect_contiguous(const Named& named);
  // Requires an address divisible by the elements' bytes.
  void expect_address(const Named& named, std::uintptr_t bytes);
  // And a contiguous last dimension.
  void expect_elements(const Named& named, std::uintptr_t bytes);

  // For a written tensor: requires distinct memory for all elements, so no stride of 0.
  void expect_own_memory(const Named& named);

  // Requires sizes, strides and address small enough for the arithmetic of the other checks.
  void expect_well_formed(const Named& named);

  // Throws FA_INVALID with all problems. `function` is the name in the message.
  void raise_if_any(const char* function = "fwd") const;

 private:
  std::string text_;
};

}  // namespace fa
