#include "host/plan/order.hpp"

#include "device/arch/traits.hpp"
#include "device/call/order.hpp"

namespace fa {

namespace {

// Dies that get runs of neighbouring workgroups. 1: the hardware deals workgroups round robin, which balances
// a few heads of unequal blocks, and sequences of unequal lengths. Even so, 16 heads in turn stay on their
// dies.
int dies_in_order(const OrderRequest& r) {
  const int dies = dies_of(r.arch, r.compute_units);
  const std::int64_t units = r.heads * r.batch;
  const bool few = r.unequal && units % dies != 0 && units < kUnevenHeads * dies;
  return few || r.packed ? 1 : dies;
}

bool takes_turns(const OrderRequest& r) {
  return r.unequal || (r.packed && dies_of(r.arch, r.compute_units) > 1);
}

}  // namespace

int dies_of(Gfx arch, std::int64_t compute_units) {
  const int each = traits(arch).die_units;
  const bool whole = each > 0 && compute_units > 0 && compute_units % each == 0;
  return whole ? static_cast<int>(compute_units / each) : 1;
}

int heads_in_turn(std::int64_t heads, std::int64_t batch, int dies, std::int64_t bytes_of_head) {
  const auto fits = [&](std::int64_t together) {
    return heads % together == 0 && (heads * batch) % (together * dies) == 0 &&
           together * bytes_of_head <= kBytesInTurn;
  };
  int found = 0;
  while (found < kMostInTurn && fits(std::int64_t{2} << found)) ++found;
  return found;
}

Order order_of(const OrderRequest& r) {
  const std::int64_t workgroups = r.blocks * r.heads * r.batch;
  if (workgroups >= kMostReordered) return {};
  const int dies = dies_in_order(r);
  return {dies, static_cast<std::int32_t>(workgroups / dies), static_cast<std::int32_t>(workgroups % dies),
          takes_turns(r) ? heads_in_turn(r.heads, r.batch, dies, r.bytes_of_head) : 0};
}

}  // namespace fa
