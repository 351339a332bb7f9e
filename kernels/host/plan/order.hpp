// The order of a launch's workgroups. The only place for it. Pure.
#pragma once

#include <cstdint>

#include "device/arch/names.hpp"
#include "device/call/params.hpp"

namespace fa {

// Dies of a device, each with its own L2. 1 if unknown.
int dies_of(Gfx arch, std::int64_t compute_units);

// Limits of heads_in_turn. More bytes leave the last caches. More heads gain nothing. Modelled:
// `scripts/wheel-builder perf --launch`, which has the same limits (extras/perf/launch/order.py).
inline constexpr std::int64_t kBytesInTurn = std::int64_t{32} << 20;
inline constexpr int kMostInTurn = 4;  // log2

// log2 of the heads that start their blocks in turn, if blocks of a head have unequal work. A die has whole
// groups of them. `bytes_of_head`: what all workgroups of a head read.
int heads_in_turn(std::int64_t heads, std::int64_t batch, int dies, std::int64_t bytes_of_head);

// From so many heads (of all sequences) a die on, a die gets whole heads, even if dies then have unequal
// shares: at most a quarter more than the mean.
inline constexpr std::int64_t kUnevenHeads = 4;

// A launch of `blocks` workgroups for each head of each sequence. `unequal`: blocks of a head have unequal
// work. `packed`: so have heads, since sequences have lengths of their own. `last_first`: the last blocks
// have the most work, and start first.
struct OrderRequest {
  Gfx arch;
  std::int64_t compute_units, blocks, heads, batch, bytes_of_head;
  bool unequal, packed, last_first;
};

// Whether a window hides keys of the longest sequence, which gives blocks of a head unequal work.
template <class Params>
bool hides_keys(const Params& p) {
  const auto hides = [](std::int32_t window, std::int32_t rows) { return window >= 0 && window < rows - 1; };
  return hides(p.window_left, p.seqlen_k) || hides(p.window_right, p.seqlen_q);
}

template <class Params>
bool is_packed(const Params& p) {
  return p.cu_seqlens_q != nullptr || p.cu_seqlens_k != nullptr;
}

// The hardware's own order of heads and blocks (zeros) for launches that are too long.
LaunchOrder order_of(const OrderRequest& request);

// The grid's width and height of a launch in this order.
template <class GridOf>
void in_order(const LaunchOrder& order, GridOf& grid) {
  grid.x <<= order.together, grid.y >>= order.together;
}

}  // namespace fa
