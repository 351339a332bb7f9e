// K or V of one sequence and head in global memory: dense, ragged or paged.
#pragma once

#include "device/forward/parts/block.hpp"

namespace fa {

struct Source {
  HeadRows rows;
  int64_t page_bytes;
};

// The place of a sequence's queries in their batch. Ragged batches have no batch stride.
template <class B>
FA_DEVICE uint32_t batch_of_queries(const B& block, const FwdParams& params) {
  return params.cu_seqlens_q == nullptr ? block.batch : 0;
}

// The place of a sequence's keys in k and v: batch entry or 0, head, first row, and the number of keys from
// it on.
struct KeyPlace {
  uint32_t batch, head, first;
  int rows;
};

// For the keys from `first` to `end`.
template <class B>
FA_DEVICE KeyPlace key_place(const B& block, int first, int end) {
  const FwdParams& params = block.params;
  int batch = block.batch, begin = block.sequence.k_first;
  const int head = B::kPacked ? block.head : head_of_keys(params, block.head);
  if constexpr (!B::kConfig.short_prologue) {  // else settled_sequence has done this
    const bool paged = B::kFeatured && params.block_table != nullptr;
    if (paged) begin = 0;
    if (paged || params.cu_seqlens_k != nullptr) {
      batch = 0;
    } else if (params.cache_batch_idx != nullptr) {
      batch = uniform(place_in_cache(params, batch));
    }
  }
  return {static_cast<uint32_t>(batch), static_cast<uint32_t>(head), static_cast<uint32_t>(begin + first),
          end - first};
}

// A few unsigned multiplications: all values are non-negative, and a row stride has 24 bits.
FA_DEVICE const char* row_at(const void* base, int64_t batch_stride, int64_t head_stride, int64_t row_stride,
                             uint32_t batch, uint32_t head, uint32_t row) {
  const uint64_t at = batch * static_cast<uint64_t>(batch_stride) +
                      head * static_cast<uint64_t>(head_stride) +
                      static_cast<uint64_t>(row) * static_cast<uint32_t>(row_stride);
  return static_cast<const char*>(base) + at * 2;
}

// Strides in elements.
FA_DEVICE HeadRows rows_at(const KeyPlace& place, const void* base, int64_t batch_stride, int64_t head_stride,
                           int64_t row_stride) {
  return {row_at(base, batch_stride, head_stride, row_stride, place.batch, place.head, place.first),
          static_cast<int64_t>(static_cast<uint32_t>(row_stride) * 2), place.rows};
}

// Q of the block's head, or of the first of its packed heads.
template <class B>
FA_DEVICE HeadRows query_rows(const B& block) {
  const FwdParams& params = block.params;
  const uint32_t batch = batch_of_queries(block, params), head = block.head * block.group;
  return {row_at(params.q, params.q_batch, params.q_head, params.q_row, batch, head, block.sequence.q_first),
          static_cast<int64_t>(static_cast<uint32_t>(params.q_row) * 2), block.sequence.seqlen_q};
}

FA_DEVICE Source source_of(const KeyPlace& place, const void* base, int64_t batch_stride, int64_t head_stride,
                           int64_t row_stride) {
  return {rows_at(place, base, batch_stride, head_stride, row_stride), batch_stride * 2};
}

// Starts to load the tile with first key `first`.
template <class B, class Stage>
FA_DEVICE void load(const B& block, Stage& stage, const Source& source, int first) {
  const FwdParams& params = block.params;
  if constexpr (!B::kFeatured) {
    stage.load(typename B::template TileView<Stage>(source.rows, first), block.mover());
  } else if (params.block_table == nullptr) {
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
