// Reads launches, one a line: arch, compute units, blocks, heads, sequences, bytes of a head, whether blocks
// have unequal work, and whether sequences are packed. Prints the order that the host gives, dies and heads
// in turn. Then prints each workgroup's work, by hardware number: "block,head,sequence".
#include <iostream>
#include <string>

#include "device/arch/names.hpp"
#include "device/arch/traits.hpp"
#include "device/call/order.hpp"
#include "host/plan/order.hpp"

namespace {

struct Grid {
  int x, y, z;
};

template <bool kDies>
void print(const fa::Order& order, const Grid& grid, unsigned blocks, unsigned heads) {
  for (int z = 0; z < grid.z; ++z) {
    for (int y = 0; y < grid.y; ++y) {
      for (int x = 0; x < grid.x; ++x) {
        const fa::WorkgroupPlace p = fa::place_among<kDies>({x, y, z}, order, blocks, heads);
        std::cout << " " << p.block << "," << p.head << "," << p.batch;
      }
    }
  }
}

}  // namespace

int main() {
  std::string arch;
  fa::OrderRequest r{};
  while (std::cin >> arch >> r.compute_units >> r.blocks >> r.heads >> r.batch >> r.bytes_of_head >>
         r.unequal >> r.packed) {
    if (!fa::parse_gfx(arch, &r.arch)) return 1;
    Grid grid{static_cast<int>(r.blocks), static_cast<int>(r.heads), static_cast<int>(r.batch)};
    fa::Order order{};
    fa::in_order(fa::order_of(r), order, grid);
    std::cout << order.dies << " " << (1 << order.together);
    const auto blocks = static_cast<unsigned>(r.blocks), heads = static_cast<unsigned>(r.heads);
    if (fa::traits(r.arch).die_units == 0) {
      print<false>(order, grid, blocks, heads);
    } else {
      print<true>(order, grid, blocks, heads);
    }
    std::cout << "\n";
  }
  return 0;
}
