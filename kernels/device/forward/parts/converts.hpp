// What happens to elements on their way into LDS: nothing, or they become fp16.
#pragma once

#include "device/memory/codes.hpp"
#include "device/scores/narrow.hpp"

namespace fa {

// kWhole and Descales: of codes (memory/codes.hpp).
template <bool kNarrow, bool kCoded, bool kWhole, class Descales>
struct ConvertOf {
  using Type = Unchanged;
};
template <bool kWhole, class Descales>
struct ConvertOf<true, false, kWhole, Descales> {
  using Type = Narrow;
};
template <bool kWhole, class Descales>
struct ConvertOf<false, true, kWhole, Descales> {
  using Type = Codes<kWhole, Descales>;
};

}  // namespace fa
