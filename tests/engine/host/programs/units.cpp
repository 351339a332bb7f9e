// Reads a runtime's answers about devices, one a line. Prints the number of compute units of each.
#include <iostream>
#include <string>

#include "host/plan/plan.hpp"

int main() {
  std::string arch;
  fa::Counted counted{};
  while (std::cin >> arch >> counted.physical >> counted.multiprocessors >> counted.threads) {
    std::cout << fa::compute_units_of(arch, counted) << "\n";
  }
  return 0;
}
