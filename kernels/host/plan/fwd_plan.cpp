#include "host/plan/fwd_plan.hpp"

#include <algorithm>

#include "device/call/every_tile.hpp"
#include "host/types/error.hpp"

namespace fa {

int bounded(std::int64_t head_dim) {
  return static_cast<int>(std::clamp<std::int64_t>(head_dim, -1, INT32_MAX));
}

Kind served_kind(const std::string& arch, const std::string& dtype, std::int64_t head_dim,
                 std::int64_t v_head_dim) {
  if (v_head_dim != head_dim) {
    const Selection found = select(name(Op::fwd_uneven), arch, dtype, bounded(head_dim));
    if (found.instance == nullptr || v_head_dim != kUnevenValueDim) {
      throw Error(FA_UNSUPPORTED, "no kernel takes v with head_dim " + std::to_string(v_head_dim) +
                                      " beside q and k with head_dim " + std::to_string(head_dim) + " on " +
                                      shown(arch) + ": pad v");
    }
    const Tabled kind = tabled(found.gfx, dtype);
    const bool exact = select(name(Op::fwd), arch, dtype, bounded(head_dim)).instance != nullptr;
    return {kind.arch, kind.dtype, exact, false, true};
  }
  // Checked for few head dims only: composing the reason takes longer than the rest of a call.
  if (head_dim > kMaxHeadDim) {
    const Selection found = select(name(Op::fwd_wide), arch, dtype, bounded(head_dim));
    if (found.instance != nullptr) {
      const Tabled kind = tabled(found.gfx, dtype);
      return {kind.arch, kind.dtype, false, true, false};
    }
  }
  const Selection found = select(name(Op::fwd), arch, dtype, bounded(head_dim));
  const auto& all = registry();
  const bool known = std::any_of(all.begin(), all.end(), [&](const Instance& each) {
    return each.op == name(Op::fwd) && each.dtype == dtype && each.has(found.gfx);
  });
  if (!known) throw Error(FA_UNSUPPORTED, found.reason);
  const Tabled kind = tabled(found.gfx, dtype);
  return {kind.arch, kind.dtype, found.instance != nullptr, false, false};
}

Selection served_kernel(const Plan& plan, const Kind& kind, std::int64_t head_dim, bool masked) {
  const std::string arch(name(kind.arch)), dtype(name(kind.dtype));
  if (kind.wide && plan.path != Path::wide) {
    throw Error(FA_UNSUPPORTED,
                "no kernel takes this call with head_dim " + std::to_string(head_dim) + ": " + plan.reason);
  }
  if (!kind.wide && (head_dim < 1 || head_dim > kMaxHeadDim)) {
    throw Error(FA_UNSUPPORTED, select(name(Op::fwd), arch, dtype, bounded(head_dim)).reason +
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
