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

void share(LaunchOrder& order, unsigned dies, unsigned workgroups) {
  order.dies = dies, order.die_factor = factor_of(dies, 0);
  order.die_each = workgroups / dies, order.die_more = workgroups % dies;
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

LaunchOrder order_of(const OrderRequest& r) {
  LaunchOrder order{};
  if (r.last_first) order.flip = -1, order.past = static_cast<std::int32_t>(r.blocks);
  const std::int64_t workgroups = r.blocks * r.heads * r.batch;
  if (workgroups >= kMostReordered) return order;
  const int dies = dies_in_order(r);
  order.together = takes_turns(r) ? heads_in_turn(r.heads, r.batch, dies, r.bytes_of_head) : 0;
  order.in_turn = (1 << order.together) - 1;
  share(order, static_cast<unsigned>(dies), static_cast<unsigned>(workgroups));
  order.row = divisor_of(static_cast<unsigned>(r.blocks << order.together));
  order.groups = divisor_of(static_cast<unsigned>(r.heads >> order.together));
  return order;
}

}  // namespace fa
