// As TransposedStage, for two tensors of which the second has shorter rows. In LDS both use the layout of the
// first, so waves reading either run the same code.
#pragma once

#include "device/memory/transposed_stage.hpp"

namespace fa {

template <class Layout, int kRows, int kHeadDim, int kValueDim, int kThreads, bool kPadded>
struct UnevenStage : TransposedStage<Layout, kRows, kHeadDim, kThreads, kPadded, 2, false, true> {
  using Even = TransposedStage<Layout, kRows, kHeadDim, kThreads, kPadded, 2, false, true>;

  // `view(tensor)` is the view of the tile's rows, with the first tensor's type. Reads of the second stop at
  // the end of its rows.
  template <class View>
  FA_DEVICE void load(const View& view, int thread) {
    for_pieces<2 * Even::kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const int tensor = Even::tensor_of(i, index), column = Even::column_of(index);
      if (tensor == 1 && column >= kValueDim / 4) return;
      const auto source = view(tensor);
      const int first = Even::block_of(index) * 4, byte = column * 8;
#pragma unroll
      for (int j = 0; j < 4; ++j) Even::row[i][j] = source.template read<u32x2>(first + j, byte);
    });
  }
};

}  // namespace fa
