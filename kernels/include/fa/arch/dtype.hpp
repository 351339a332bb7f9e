// The element types of q, k, v and out, and their names.  Host and device; includes nothing of ours.
#pragma once

#include <string_view>

namespace fa {

enum class DType { fp16, bf16 };

inline constexpr DType kAllDTypes[] = {DType::fp16, DType::bf16};

constexpr std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::fp16: return "fp16";
    case DType::bf16: return "bf16";
  }
  return {};
}

constexpr bool parse_dtype(std::string_view text, DType* dtype) {
  for (const DType known : kAllDTypes) {
    if (text == name(known)) {
      *dtype = known;
      return true;
    }
  }
  return false;
}

}  // namespace fa
