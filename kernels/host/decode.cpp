#include "decode.hpp"

#include <cstdint>

#include "error.hpp"
#include "fa/arch/dtype.hpp"
#include "fa/arch/gfx.hpp"
#include "fa/kernel/config.hpp"
#include "module.hpp"
#include "select.hpp"

namespace fa {

namespace {

struct Grid {
  std::int64_t x, y, z;
  int threads;
};

// HIP counts a launch's threads in each direction with 32 bits.
template <class Params>
void launch(const Selection& selection, const Grid& grid, Params params, const Place& place) {
  const std::string what =
      selection.instance->name + " on device " + std::to_string(place.device) + " (" + selection.gfx + ")";
  if (grid.x * grid.threads > UINT32_MAX) {
    throw Error(FA_UNSUPPORTED, what + ": " + std::to_string(grid.x) + " workgroups in a row are too many");
  }
  void* arguments[] = {&params};
  const hipFunction_t kernel = loaded_kernel(place.device, selection.gfx, *selection.instance);
  check(hipModuleLaunchKernel(kernel, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                              static_cast<unsigned>(grid.z), static_cast<unsigned>(grid.threads), 1, 1, 0,
                              place.stream, arguments, nullptr),
        "launching " + what, "AMD_LOG_LEVEL=3 in the environment makes the HIP runtime say more");
}

Selection served(const std::string& op, const std::string& dtype, int head_dim, const Place& place) {
  const Selection selection = select(op, place.arch, dtype, head_dim);
  if (selection.instance == nullptr) throw Error(FA_UNSUPPORTED, selection.reason);
  return selection;
}

FwdTile tile_of(const Selection& selection) {
  Gfx gfx{};
  DType dtype{};
  if (!parse_gfx(selection.gfx, &gfx) || !parse_dtype(selection.instance->dtype, &dtype)) {
    throw Error(FA_INTERNAL, "the registry names " + selection.gfx + " and " + selection.instance->dtype +
                                 ", and kernels/include/fa/arch lacks one of them");
  }
  return decode_tile(gfx, dtype, selection.instance->head_dim);
}

Grid decode_grid(const FwdArguments& call, const FwdTile& tile) {
  const FwdParams& p = call.params;
  const std::int64_t rows = static_cast<std::int64_t>(p.seqlen_q) * (p.nheads / p.nheads_k);
  const std::int64_t blocks = (rows + tile.block_m - 1) / tile.block_m;
  return {blocks * (p.splits > 1 ? p.splits : 1), p.nheads_k, call.batch, tile.threads};
}

CombineParams combine_params(const FwdParams& p, int head_dim) {
  CombineParams c{};
  c.partial_out = p.partial_out, c.partial_lse = p.partial_lse, c.out = p.out, c.lse = p.lse;
  c.cu_seqlens_q = p.cu_seqlens_q;
  c.partial_split = p.partial_split;
  c.o_batch = p.o_batch, c.o_row = p.o_row, c.o_head = p.o_head;
  c.lse_batch = p.lse_batch, c.lse_head = p.lse_head;
  c.seqlen_q = p.seqlen_q, c.rows_q = p.rows_q;
  c.splits = p.splits, c.head_dim = head_dim;
  return c;
}

}  // namespace

void decode(const FwdArguments& call, const std::string& dtype, int head_dim, const Place& place) {
  const FwdParams& p = call.params;
  const Selection first = served("decode", dtype, head_dim, place);
  if (p.splits <= 1) return launch(first, decode_grid(call, tile_of(first)), p, place);
  const Selection second = served("combine", dtype, 0, place);
  launch(first, decode_grid(call, tile_of(first)), p, place);
  launch(second, Grid{p.seqlen_q, p.nheads, call.batch, kCombineThreads}, combine_params(p, head_dim), place);
}

}  // namespace fa
