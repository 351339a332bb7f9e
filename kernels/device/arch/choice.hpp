// A type by a condition.
#pragma once

namespace fa {

// First or Second.
template <bool kFirst, class First, class Second>
struct ChoiceOf {
  using Type = First;
};
template <class First, class Second>
struct ChoiceOf<false, First, Second> {
  using Type = Second;
};
template <bool kFirst, class First, class Second>
using Choice = typename ChoiceOf<kFirst, First, Second>::Type;

}  // namespace fa
