// Reads requests, one a line, and prints the plan of each: path, splits, and why.
#include <iostream>
#include <string>

#include "device/arch/names.hpp"
#include "device/call/every_tile.hpp"
#include "host/plan/plan.hpp"

int main() {
  std::string arch, dtype;
  fa::PlanRequest r{};
  while (std::cin >> arch >> dtype >> r.head_dim >> r.batch >> r.max_seqlen_q >> r.max_seqlen_k >> r.nheads >>
         r.nheads_k >> r.compute_units >> r.num_splits >> r.dropout >> r.aligned >> r.tall >> r.masked >>
         r.wide >> r.uneven) {
    if (!fa::parse_gfx(arch, &r.arch) || !fa::parse_dtype(dtype, &r.dtype)) return 1;
    r.exact = fa::forward_config(fa::Op::fwd, r.arch, r.dtype, static_cast<int>(r.head_dim)).waves > 0;
    const fa::Plan plan = fa::plan(r);
    std::cout << fa::name(plan.path) << " " << plan.splits << " " << plan.reason << "\n";
  }
  return 0;
}
