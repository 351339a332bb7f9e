#include "host/plan/fwd_plan.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "device/call/every_tile.hpp"
#include "host/registry/remembered.hpp"
#include "host/types/error.hpp"

namespace fa {

namespace {

static_assert(value_dim_of(op_of(Path::uneven)) == kUnevenValueDim, "kinds.toml has another head dim of v");

// The forwards for this head dim, without those for another head dim of v than the call's.
OpSet forwards_there(const std::string& gfx, const std::string& dtype, std::int64_t head_dim,
                     std::int64_t v_head_dim) {
  OpSet found;
  for (const Instance& each : registry()) {
    if (each.head_dim != head_dim || each.dtype != dtype || !each.has(gfx)) continue;
    for (const Op op : kForwards) {
      const int of_v = value_dim_of(op);
      const bool fits = of_v == 0 || (of_v == v_head_dim && of_v != head_dim);
      if (fits && each.op == name(op)) found.add(op);
    }
  }
  return found;
}

bool takes_another_v(const OpSet& ops) {
  return std::any_of(std::begin(kForwards), std::end(kForwards),
                     [&](Op op) { return value_dim_of(op) != 0 && ops.has(op); });
}

// Composing the reason takes longer than the rest of a call.
void require_forwards(const std::string& arch, const std::string& dtype, std::int64_t head_dim) {
  const std::string op(name(op_of(Path::matrix)));
  const Selection found = select(op, arch, dtype, bounded(head_dim));
  const auto& all = registry();
  const bool known = std::any_of(all.begin(), all.end(), [&](const Instance& each) {
    return each.op == op && each.dtype == dtype && each.has(found.gfx);
  });
  if (!known) throw Error(FA_UNSUPPORTED, found.reason);
}

Kernels find_forward_kernels(const std::string& arch, const std::string& dtype, std::int64_t head_dim,
                             std::int64_t v_head_dim) {
  const std::string gfx = code_object_of(arch);
  const OpSet there = forwards_there(gfx, dtype, head_dim, v_head_dim);
  if (v_head_dim != head_dim && !takes_another_v(there)) {
    throw Error(FA_UNSUPPORTED, "no kernel takes v with head_dim " + std::to_string(v_head_dim) +
                                    " beside q and k with head_dim " + std::to_string(head_dim) + " on " +
                                    shown(arch) + ": pad v");
  }
  if (there.bits == 0) require_forwards(arch, dtype, head_dim);
  const Tabled names = tabled(gfx, dtype);
  return {names.arch, names.dtype, there};
}

}  // namespace

int bounded(std::int64_t head_dim) {
  return static_cast<int>(std::clamp<std::int64_t>(head_dim, -1, INT32_MAX));
}

Kernels forward_kernels(const std::string& arch, const std::string& dtype, std::int64_t head_dim,
                        std::int64_t v_head_dim) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::string, std::string>;
  static auto& all = *new Remembered<Key, Kernels>;
  return all.of({head_dim, v_head_dim, dtype, arch},
                [&] { return find_forward_kernels(arch, dtype, head_dim, v_head_dim); });
}

Selection served_kernel(const Plan& plan, const Kernels& kernels, std::int64_t head_dim, bool masked) {
  const std::string arch(name(kernels.arch)), dtype(name(kernels.dtype));
  const bool wide = kernels.there.has(op_of(Path::wide));
  if (wide && plan.path != Path::wide) {
    throw Error(FA_UNSUPPORTED,
                "no kernel takes this call with head_dim " + std::to_string(head_dim) + ": " + plan.reason);
  }
  if (!wide && (head_dim < 1 || head_dim > kMaxHeadDim)) {
    throw Error(FA_UNSUPPORTED, select(name(op_of(Path::matrix)), arch, dtype, bounded(head_dim)).reason +
                                    ", and a reference kernel for any head_dim from 1 to " +
                                    std::to_string(kMaxHeadDim));
  }
  const Selection selection = served(name(op_of(plan.path, masked)), arch, dtype, static_cast<int>(head_dim));
  if (masked && plan.path == Path::reference) {
    throw Error(FA_UNSUPPORTED, "no kernel takes this call's attn_mask: " + plan.reason);
  }
  return selection;
}

}  // namespace fa
