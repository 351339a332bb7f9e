// Reads launches, one a line: arch, compute units, blocks, heads, sequences, bytes of a head, whether blocks
// have unequal work, whether sequences are packed, and whether the last blocks start first. Prints the order
// that the host gives, dies and heads in turn. Then prints each workgroup's work, by hardware number:
// "block,head,sequence".
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
void print(const fa::LaunchOrder& order, const Grid& grid) {
  for (int z = 0; z < grid.z; ++z) {
    for (int y = 0; y < grid.y; ++y) {
      for (int x = 0; x < grid.x; ++x) {
        const fa::WorkgroupPlace p = fa::place_among<kDies>({x, y, z}, order);
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
         r.unequal >> r.packed >> r.last_first) {
    if (!fa::parse_gfx(arch, &r.arch)) return 1;
    Grid grid{static_cast<int>(r.blocks), static_cast<int>(r.heads), static_cast<int>(r.batch)};
    const fa::LaunchOrder order = fa::order_of(r);
    fa::in_order(order, grid);
    std::cout << order.dies << " " << (1 << order.together);
    if (fa::traits(r.arch).die_units == 0) {
      print<false>(order, grid);
    } else {
      print<true>(order, grid);
    }
    std::cout << "\n";
  }
  return 0;
}
