// Rows of the table of tiles. FA_TILES_<tile> names the generated file with the rows used by a translation
// unit: of its kernel and head dim (generated/device/tiles/fwd/d64.inc) or of all
// (generated/device/tiles/host). Headers of kernels do not include this one: a header compiled for many
// kernels would change with the rows of each.
#pragma once

#include "device/call/backward_config.hpp"

namespace fa {

// The dtypes and loops of a row, by their names in the table.
namespace row_for {
constexpr bool any_dtype(DType) { return true; }
constexpr bool fp16(DType dtype) { return dtype == DType::fp16; }
constexpr bool bf16(DType dtype) { return dtype == DType::bf16; }
constexpr bool any_loop(bool) { return true; }
constexpr bool plain(bool featured) { return !featured; }
constexpr bool featured(bool featured) { return featured; }
}  // namespace row_for

// The rest of a row's key.
struct TileKey {
  Isa isa;
  int head_dim;
  int vgprs;  // per SIMD and lane; 0: any
};

constexpr bool is_for(const TileKey& row, Gfx arch, int head_dim) {
  return row.isa == traits(arch).isa && row.head_dim == head_dim &&
         (row.vgprs == 0 || row.vgprs == traits(arch).vgprs);
}

#define FA_TILE(isa_, dtype_, head_dim_, loop_, vgprs_, ...)    \
  if (row_for::dtype_(dtype) && row_for::loop_(featured) &&     \
      is_for({Isa::isa_, head_dim_, vgprs_}, arch, head_dim)) { \
    return {__VA_ARGS__};                                       \
  }
// Some ISAs lack rows of some kernels.
#define FA_TILE_OF                                                                 \
  [[maybe_unused]] Op op, [[maybe_unused]] Gfx arch, [[maybe_unused]] DType dtype, \
      [[maybe_unused]] int head_dim, [[maybe_unused]] bool featured
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc++20-designator"

#ifdef FA_TILES_forward
constexpr FwdConfig forward_config(FA_TILE_OF) {
#include FA_TILES_forward
  return {};
}
#endif

#ifdef FA_TILES_dkdv
constexpr DkDvConfig dkdv_config(FA_TILE_OF) {
#include FA_TILES_dkdv
  return {};
}
#endif

#ifdef FA_TILES_dq
constexpr DqConfig dq_config(FA_TILE_OF) {
#include FA_TILES_dq
  return {};
}
#endif

#pragma clang diagnostic pop
#undef FA_TILE
#undef FA_TILE_OF

}  // namespace fa
