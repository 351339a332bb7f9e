// K or V of one sequence and head in global memory: dense, ragged or in pages.
#pragma once

#include "fa/kernel/block.hpp"

namespace fa {

struct Source {
  HeadRows rows;
  int64_t page_bytes;
};

// The sequence's place in the batch of k and v.
template <class B>
FA_DEVICE int place_in_batch(const B& block) {
  if (B::kConfig.identity_shortcuts && block.params.cache_batch_idx == nullptr) return block.batch;
  return uniform(place_in_cache(block.params, block.batch));
}

// Strides in elements.  Rows from `rows` on are not read.
template <class B>
FA_DEVICE Source source_of(const B& block, const void* base, int64_t batch_stride, int64_t head_stride,
                           int64_t row_stride, int rows) {
  const FwdParams& params = block.params;
  const bool paged = B::kFeatured && params.block_table != nullptr;
  const bool ragged = params.cu_seqlens_k != nullptr;
  const int head_k = B::kPacked || (B::kConfig.identity_shortcuts && params.nheads == params.nheads_k)
                         ? block.head
                         : uniform(block.head / (params.nheads / params.nheads_k));
  const int64_t place = paged || ragged ? 0 : place_in_batch(block);
  const int64_t offset =
      place * batch_stride + head_k * head_stride + (paged ? 0 : block.sequence.k_first * row_stride);
  return {{static_cast<const char*>(base) + offset * 2, row_stride * 2, rows}, batch_stride * 2};
}

// Begins to load the tile whose first key is `first`.
template <class B, class Stage>
FA_DEVICE void load(const B& block, Stage& stage, const Source& source, int first) {
  const FwdParams& params = block.params;
  if (!B::kFeatured || params.block_table == nullptr) {
    stage.load(typename B::TileView(source.rows, first), block.mover());
  } else {
    const PagedRows rows{source.rows.base,    source.rows.row_bytes,
                         source.page_bytes,   params.block_table + block.batch * params.table_batch,
                         source.rows.rows,    here_uniform(params.page),
                         params.num_pages - 1};
    stage.load(PagedView{rows, first}, block.mover());
  }
}

}  // namespace fa
