#include "host/calls/decode.hpp"

#include <cstdint>

#include "device/call/every_tile.hpp"
#include "host/launch/replaced.hpp"

namespace fa {

namespace {

CombineParams combine_params(const FwdParams& p, int head_dim) {
  CombineParams c{};
  c.partial_out = p.partial_out, c.partial_lse = p.partial_lse, c.out = p.out, c.lse = p.lse;
  c.cu_seqlens_q = p.cu_seqlens_q, c.sink = p.sink;
  c.partial_split = p.partial_split;
  c.o_batch = p.o_batch, c.o_row = p.o_row, c.o_head = p.o_head;
  c.lse_batch = p.lse_batch, c.lse_head = p.lse_head;
  c.seqlen_q = p.seqlen_q, c.rows_q = p.rows_q;
  c.splits = p.splits, c.head_dim = head_dim;
  return c;
}

// `params` are the kernel's, of which `p` are part.
template <class Params>
void launch_and_join(const FwdArguments& call, const Selection& selection, const Grid& grid,
                     const Params& params, const FwdParams& p, int head_dim, const Place& place) {
  if (p.splits <= 1) return launch(selection, grid, params, place);
  const Selection combine = served(name(Op::combine), place.arch, selection.instance->dtype, kAnyHeadDim);
  const Grid rows{p.seqlen_q, p.nheads, call.batch, kCombineThreads};
  require_launchable(combine, rows);
  launch(selection, grid, params, place);
  launch(combine, rows, combine_params(p, head_dim), place);
}

}  // namespace

Grid packed_grid(const FwdArguments& call, const Workgroups& used) {
  const FwdParams& p = call.params;
  const std::int64_t rows = static_cast<std::int64_t>(p.seqlen_q) * (p.nheads / p.nheads_k);
  const std::int64_t blocks = (rows + used.rows - 1) / used.rows;
  return {blocks * (p.splits > 1 ? p.splits : 1), p.nheads_k, call.batch, used.threads, used.kernel};
}

void launch_parts(const FwdArguments& call, const Selection& selection, const Grid& grid, const FwdParams& p,
                  int head_dim, const Place& place) {
  if (!call.coded) return launch_and_join(call, selection, grid, p, p, head_dim, place);
  CodedParams coded = call.codes;
  coded.fwd = p;
  launch_and_join(call, selection, grid, coded, p, head_dim, place);
}

void decode(const FwdArguments& call, const Selection& selection, const Kernels& kernels,
            const Place& place) {
  const int head_dim = selection.instance->head_dim;
  const Op op = op_of(Path::split, {false, call.coded});
  const FwdTile tile = forward_tile(op, kernels.arch, kernels.dtype, head_dim);
  const CallSizes sizes = sizes_of(call.max_seqlen_q, call.max_seqlen_k, call.params);
  const Grid grid =
      packed_grid(call, in_use(place.device, *selection.instance, sizes, {tile.block_m, tile.threads}));
  launch_parts(call, selection, grid, call.params, head_dim, place);
}

}  // namespace fa
