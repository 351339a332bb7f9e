// The tensors of each call and their checks: `tensors_of`, generated from calls.toml.
#pragma once

#include <array>

#include "host/arguments/problems.hpp"

namespace fa {

// rows: of heads, in q's dtype. codes: of 8 bits. cache: rows in q's dtype, or codes. mask: bool, q's dtype
// or fp32.
enum class Holds { rows, codes, cache, fp32, int32, int64, mask };
enum class Contiguous { any, last, all };  // contiguous dimensions

struct Described {
  Named named;
  Holds holds;
  Contiguous contiguous;
  bool optional;
};

#include "generated/host/call_tensors.inc"

}  // namespace fa
