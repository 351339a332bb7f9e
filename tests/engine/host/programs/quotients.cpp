// Divides as the orders of workgroups do. Prints "x/d" for each wrong quotient, and the number of divisors.
#include <iostream>

#include "device/call/order.hpp"

namespace {

constexpr unsigned kMost = 1u << 31;

// Around multiples of d, the first and the last ones, and some between.
template <class Quotient>
void check(unsigned d, unsigned most, const Quotient& quotient) {
  const unsigned last = (most - 1) / d;
  for (unsigned i = 0; i <= 64; ++i) {
    const unsigned multiple = static_cast<unsigned>(static_cast<unsigned long long>(last) * i / 64) * d;
    for (const unsigned x : {multiple, multiple + 1, multiple + d - 1, multiple == 0 ? 0 : multiple - 1}) {
      if (x < most && quotient(x) != x / d) std::cout << x << "/" << d << "\n";
    }
  }
}

}  // namespace

int main() {
  unsigned divisors = 0;
  for (unsigned d = 1; d < kMost; d += d < 100000 ? 1 : d / 128, ++divisors) {
    const fa::Divisor by = fa::divisor_of(d);
    check(d, kMost, [&](unsigned x) { return fa::quotient(x, by); });
    if (d > fa::kMostDies) continue;
    const unsigned factor = fa::factor_of(d, 0);
    check(d, fa::kMostReordered, [&](unsigned x) { return fa::short_quotient(x, factor); });
  }
  for (unsigned shift = 0; shift < 31; ++shift) {
    for (const unsigned d : {(1u << shift) - 1, 1u << shift, (1u << shift) + 1}) {
      if (d == 0) continue;
      const fa::Divisor by = fa::divisor_of(d);
      check(d, kMost, [&](unsigned x) { return fa::quotient(x, by); });
    }
  }
  std::cout << divisors << "\n";
  return 0;
}
