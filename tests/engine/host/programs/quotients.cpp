// Divides like short prologues, with the reciprocal and its neighbours.  Prints "x/d" for each wrong
// quotient, and the number of divisors.
#include <cmath>
#include <iostream>

#include "device/call/order.hpp"

namespace {

void check(unsigned d, float reciprocal) {
  const unsigned last = (fa::kMostReordered - 1) / d;
  // Around multiples of d, the first and the last ones, and some between.
  for (unsigned i = 0; i <= 64; ++i) {
    const unsigned multiple = static_cast<unsigned>(static_cast<unsigned long long>(last) * i / 64) * d;
    for (const unsigned x : {multiple, multiple + 1, multiple + d - 1, multiple == 0 ? 0 : multiple - 1}) {
      if (x < fa::kMostReordered && fa::quotient_by(x, reciprocal) != x / d)
        std::cout << x << "/" << d << "\n";
    }
  }
}

}  // namespace

int main() {
  unsigned divisors = 0;
  for (unsigned d = 1; d < fa::kMostReordered; d += d < 100000 ? 1 : 997, ++divisors) {
    const float reciprocal = static_cast<float>(1.0 / d);
    for (const float around :
         {std::nextafter(reciprocal, 0.0f), reciprocal, std::nextafter(reciprocal, 2.0f)}) {
      check(d, around);
    }
  }
  std::cout << divisors << "\n";
  return 0;
}
