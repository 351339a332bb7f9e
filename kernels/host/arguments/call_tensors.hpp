// The tensors of each call and their checks: `tensors_of`, generated from calls.toml.
#pragma once

#include <array>

#include "host/arguments/problems.hpp"

namespace fa {

// rows: of heads, in q's dtype. cache: rows in q's dtype or in codes of 8 bits. mask: bool, q's dtype or
// fp32.
enum class Holds { rows, cache, fp32, int32, int64, mask };
enum class Contiguous { any, last, all };  // contiguous dimensions

struct Described {
  Named named;
  Holds holds;
  Contiguous contiguous;
  bool optional;
};

#include "generated/host/call_tensors.inc"

}  // namespace fa
