// Reads requests, one a line, and prints the plan of each: path, splits, and why.
#include <iostream>
#include <string>

#include "device/arch/names.hpp"
#include "device/call/every_tile.hpp"
#include "host/plan/plan.hpp"

int main() {
  std::string arch, dtype;
  fa::PlanRequest r{};
  bool wide, uneven;
  while (std::cin >> arch >> dtype >> r.head_dim >> r.batch >> r.max_seqlen_q >> r.max_seqlen_k >> r.nheads >>
         r.nheads_k >> r.compute_units >> r.num_splits >> r.dropout >> r.aligned >> r.plain >> r.masked >>
         wide >> uneven >> r.coded >> r.causal) {
    if (!fa::parse_gfx(arch, &r.arch) || !fa::parse_dtype(dtype, &r.dtype)) return 1;
    r.kernels = {};
    const int head_dim = static_cast<int>(r.head_dim);
    if (fa::forward_config(fa::Op::fwd, r.arch, r.dtype, head_dim).waves > 0) r.kernels.add(fa::Op::fwd);
    if (r.plain) r.kernels.add(fa::Op::fwd_tall);
    if (wide) r.kernels.add(fa::Op::fwd_wide);
    if (uneven) r.kernels.add(fa::Op::fwd_uneven);
    if (fa::forward_config(fa::Op::decode_8bit, r.arch, r.dtype, head_dim).waves > 0) {
      r.kernels.add(fa::Op::decode_8bit);
    }
    const fa::Plan plan = fa::plan(r);
    std::cout << fa::name(plan.path) << " " << plan.splits << " " << plan.reason << "\n";
  }
  return 0;
}
