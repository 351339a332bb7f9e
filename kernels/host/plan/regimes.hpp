// Which kernels answer a forward call, by its regime: kernels/tables/tuning.toml, which explains the fields.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "device/arch/names.hpp"
#include "device/call/config.hpp"

namespace fa {

inline constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

struct Bounds {
  std::int64_t least, most;

  constexpr bool hold(std::int64_t n) const { return least <= n && n <= most; }
};

struct Regime {
  const char* name;
  Bounds queries, keys, width;
  std::optional<bool> causal;
};

// What tells regimes apart. `width`: heads of q for a head of k. `causal`: with hidden later keys.
struct CallSizes {
  std::int64_t queries, keys, width;
  bool causal;
};

enum class Chosen;

// Without a value, and with 0 for head_dim or -1 for regime, all calls fit.
struct Choice {
  int regime;
  std::optional<Gfx> arch;
  std::optional<DType> dtype;
  std::int64_t head_dim;
  Chosen kernels;
  double filled;
  std::int64_t places, in_flight, keys;
};

#include "generated/host/regimes.inc"

// The number of a call's regime.
constexpr int regime_of(const CallSizes& call) {
  int found = 0;
  for (const Regime& each : kRegimes) {
    if (each.queries.hold(call.queries) && each.keys.hold(call.keys) && each.width.hold(call.width) &&
        each.causal.value_or(call.causal) == call.causal) {
      break;
    }
    ++found;
  }
  return found;
}

template <class Params>
constexpr CallSizes sizes_of(std::int64_t queries, std::int64_t keys, const Params& p) {
  return {queries, keys, p.nheads_k == 0 ? 0 : p.nheads / p.nheads_k, p.window_right >= 0};
}

constexpr const Choice& choice_of(int regime, Gfx arch, DType dtype, std::int64_t head_dim) {
  const Choice* found = kChoices;
  while ((found->regime != -1 && found->regime != regime) || found->arch.value_or(arch) != arch ||
         found->dtype.value_or(dtype) != dtype || (found->head_dim != 0 && found->head_dim != head_dim)) {
    ++found;
  }
  return *found;  // the last one fits all calls
}

}  // namespace fa
