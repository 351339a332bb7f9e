// Rows of the table of tiles. FA_TILES_<kernel> names the generated file with the rows used by a translation
// unit: of one head dim (generated/device/tiles/fwd/d64.inc) or of all (generated/device/tiles/all/fwd.inc).
// Headers of kernels do not include this one: a header compiled for many kernels would change with the rows
// of each.
#pragma once

#include "device/call/backward_config.hpp"

namespace fa {

// Key of a row.
struct TileKey {
  Isa isa;
  DType dtype;
  int head_dim;
  bool featured;
  int vgprs;  // per SIMD and lane; 0: any
};

constexpr bool is_for(const TileKey& row, Gfx arch, DType dtype, int head_dim, bool featured) {
  return row.isa == traits(arch).isa && row.dtype == dtype && row.head_dim == head_dim &&
         row.featured == featured && (row.vgprs == 0 || row.vgprs == traits(arch).vgprs);
}

#define FA_TILE(isa_, dtype_, head_dim_, featured_, vgprs_, ...)                                           \
  if (is_for({Isa::isa_, DType::dtype_, head_dim_, featured_, vgprs_}, arch, dtype, head_dim, featured)) { \
    return {__VA_ARGS__};                                                                                  \
  }
// Some ISAs lack rows of some kernels.
#define FA_TILE_OF                                                                        \
  [[maybe_unused]] Gfx arch, [[maybe_unused]] DType dtype, [[maybe_unused]] int head_dim, \
      [[maybe_unused]] bool featured
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc++20-designator"

#ifdef FA_TILES_fwd
constexpr FwdConfig fwd_config(FA_TILE_OF) {
#include FA_TILES_fwd
  return {};
}
#endif

#ifdef FA_TILES_fwd_tall
constexpr FwdConfig tall_config(FA_TILE_OF) {
#include FA_TILES_fwd_tall
  return {};
}
#endif

#ifdef FA_TILES_fwd_uneven
constexpr FwdConfig uneven_config(FA_TILE_OF) {
#include FA_TILES_fwd_uneven
  return {};
}
#endif

#ifdef FA_TILES_fwd_wide
constexpr FwdConfig wide_config(FA_TILE_OF) {
#include FA_TILES_fwd_wide
  return {};
}
#endif

#ifdef FA_TILES_fwd_masked
constexpr FwdConfig fwd_masked_config(FA_TILE_OF) {
#include FA_TILES_fwd_masked
  return {};
}
#endif

#ifdef FA_TILES_decode
constexpr FwdConfig decode_config(FA_TILE_OF) {
#include FA_TILES_decode
  return {};
}
#endif

#ifdef FA_TILES_mla
constexpr FwdConfig mla_config(FA_TILE_OF) {
#include FA_TILES_mla
  return {};
}
#endif

#ifdef FA_TILES_bwd_dkdv
constexpr DkDvConfig dkdv_config(FA_TILE_OF) {
#include FA_TILES_bwd_dkdv
  return {};
}
#endif

#ifdef FA_TILES_bwd_dq
constexpr DqConfig dq_config(FA_TILE_OF) {
#include FA_TILES_bwd_dq
  return {};
}
#endif

#ifdef FA_TILES_bwd_dkdv_uneven
constexpr DkDvConfig dkdv_uneven_config(FA_TILE_OF) {
#include FA_TILES_bwd_dkdv_uneven
  return {};
}
#endif

#ifdef FA_TILES_bwd_dq_uneven
constexpr DqConfig dq_uneven_config(FA_TILE_OF) {
#include FA_TILES_bwd_dq_uneven
  return {};
}
#endif

#ifdef FA_TILES_bwd_dkdv_masked
constexpr DkDvConfig dkdv_masked_config(FA_TILE_OF) {
#include FA_TILES_bwd_dkdv_masked
  return {};
}
#endif

#ifdef FA_TILES_bwd_dq_masked
constexpr DqConfig dq_masked_config(FA_TILE_OF) {
#include FA_TILES_bwd_dq_masked
  return {};
}
#endif

#ifdef FA_TILES_bwd_fused
constexpr DkDvConfig fused_config(FA_TILE_OF) {
#include FA_TILES_bwd_fused
  return {};
}
#endif

#pragma clang diagnostic pop
#undef FA_TILE
#undef FA_TILE_OF

}  // namespace fa
