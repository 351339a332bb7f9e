// The tensors of each call, with what the checks expect of them: `tensors_of`, generated from calls.toml.
#pragma once

#include <array>

#include "problems.hpp"

namespace fa {

enum class Holds { rows, fp32, int32, int64 };  // rows: of heads, in q's dtype
enum class Contiguous { any, last, all };       // which dimensions are

struct Described {
  Named named;
  Holds holds;
  Contiguous contiguous;
  bool optional;
};

#include "call_tensors.inc"

}  // namespace fa
