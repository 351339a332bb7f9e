// The element types of q, k, v and out. Host and device. Includes none of our headers.
#pragma once

namespace fa {

enum class DType { fp16, bf16 };

inline constexpr DType kAllDTypes[] = {DType::fp16, DType::bf16};

}  // namespace fa
