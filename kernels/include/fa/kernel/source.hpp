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

// For a kernel with a short prologue, a few unsigned multiplications: nothing is below 0, and a row stride
// has 24 bits.  `first`: the key to begin with.
struct KeyPlace {
  uint32_t batch, head, first;
  int rows;
};

template <class B>
FA_DEVICE KeyPlace key_place(const B& block, int first) {
  const FwdParams& params = block.params;
  int head = block.head;
  if (params.nheads != params.nheads_k) head = uniform(head / (params.nheads / params.nheads_k));
  return {static_cast<uint32_t>(block.batch), static_cast<uint32_t>(head),
          static_cast<uint32_t>(block.sequence.k_first + first), block.sequence.seqlen_k - first};
}

FA_DEVICE const char* row_at(const void* base, int64_t batch_stride, int64_t head_stride, int64_t row_stride,
                             uint32_t batch, uint32_t head, uint32_t row) {
  const uint64_t at = batch * static_cast<uint64_t>(batch_stride) +
                      head * static_cast<uint64_t>(head_stride) +
                      static_cast<uint64_t>(row) * static_cast<uint32_t>(row_stride);
  return static_cast<const char*>(base) + at * 2;
}

FA_DEVICE HeadRows rows_at(const KeyPlace& place, const void* base, int64_t batch_stride, int64_t head_stride,
                           int64_t row_stride) {
  return {row_at(base, batch_stride, head_stride, row_stride, place.batch, place.head, place.first),
          static_cast<int64_t>(static_cast<uint32_t>(row_stride) * 2), place.rows};
}

// Strides in elements; `key`: of a kernel with a short prologue.  Rows from `rows` on are not read.
template <class B>
FA_DEVICE Source source_of(const B& block, const KeyPlace& key, const void* base, int64_t batch_stride,
                           int64_t head_stride, int64_t row_stride, int rows) {
  const FwdParams& params = block.params;
  if constexpr (B::kConfig.short_prologue) {
    return {rows_at(key, base, batch_stride, head_stride, row_stride), 0};
  }
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
    stage.load(typename B::template TileView<Stage>(source.rows, first), block.mover());
  } else {
    const PagedRows rows{source.rows.base,    source.rows.row_bytes,
                         source.page_bytes,   params.block_table + block.batch * params.table_batch,
                         source.rows.rows,    here_uniform(params.page),
                         params.num_pages - 1};
    stage.load(PagedView{rows, first}, block.mover());
  }
}

}  // namespace fa
