// Reads launches, one a line: arch, compute units, blocks, heads, sequences.  Prints the host's number of
// dies for each. Then prints each workgroup's work, by hardware number: "block,head,sequence".
#include <iostream>
#include <string>

#include "device/arch/names.hpp"
#include "device/call/order.hpp"
#include "host/plan/plan.hpp"

int main() {
  std::string arch;
  unsigned units = 0, blocks = 0, heads = 0, batch = 0;
  fa::Gfx gfx{};
  while (std::cin >> arch >> units >> blocks >> heads >> batch) {
    if (!fa::parse_gfx(arch, &gfx)) return 1;
    const unsigned dies = static_cast<unsigned>(fa::dies_of(gfx, units)), total = blocks * heads * batch;
    std::cout << dies;
    for (unsigned number = 0; number < total; ++number) {
      const fa::WorkgroupPlace p =
          fa::place_at(fa::neighbours_on_a_die(number, dies, total / dies, total % dies), blocks, heads);
      std::cout << " " << p.block << "," << p.head << "," << p.batch;
    }
    std::cout << "\n";
  }
  return 0;
}
