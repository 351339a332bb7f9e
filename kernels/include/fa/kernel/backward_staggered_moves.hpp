// How the loop of backward_staggered.hpp loads: tiles straight into LDS, and numbers per query.
#pragma once

#include "fa/kernel/backward_moves.hpp"
#include "fa/tile/direct.hpp"

namespace fa {

// A turn's tiles: their first row, kNone where there are none, and where numbers per query and dQ's sums of
// their head begin.
struct Turn {
  static constexpr int kNone = 1 << 30;  // beyond all rows
  int first = kNone;
  const char* numbers = nullptr;
  float* dq_sums = nullptr;
};

// Loads the tiles of one turn after the other.
template <class B, class Dq>
struct StaggeredMoves {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  using Lines = typename Stage::Lines;
  using NumberView = BufferView<B::kQueries, sizeof(float), B::kTraits.buffer_word3>;
  static constexpr int kRows = B::kAtOnce * B::kQueries;

  const Dq& dq;
  HeadRows q, dout;
  const char* numbers;
  float* dq_sums;
  Lines of_q, of_dout;
  int head_q, first;
  int place;
  float slope, start;

  FA_DEVICE StaggeredMoves(const B& block, const BwdParams& params, const Dq& dq, int head_q, int first)
      : dq(dq),
        of_q(static_cast<uint32_t>(row_bytes_of(params.q)), block.pair, block.lane),
        of_dout(static_cast<uint32_t>(row_bytes_of(params.dout)), block.pair, block.lane),
        head_q(head_q),
        first(first) {
    const bool of_weights = block.is(Role::weights);
    const float inverse = __builtin_amdgcn_rcpf(block.factor);
    slope = uniform(of_weights ? -Scoring::kLog2e * inverse : -1.0f);
    start = uniform(of_weights ? Scoring::kGain<B::kDType> * 0.5f * inverse : 0.0f);
    const int row = Unit::slot_of_row(Unit::a_row(block.lane), B::kQueries);
    constexpr int kNowhere = 1 << 20;  // reads as zero
    place = block.lane < Unit::kM ? row * static_cast<int>(sizeof(float)) : kNowhere;
    of_head(block, params);
  }

  FA_DEVICE void of_head(const B& block, const BwdParams& params) {
    const Sequence& sequence = block.sequence;
    const uint32_t batch = params.cu_seqlens_q != nullptr ? 0 : block.batch;
    q = {row_of(params.q, batch, head_q, sequence.q_first), row_bytes_of(params.q), sequence.seqlen_q};
    dout = {row_of(params.dout, batch, head_q, sequence.q_first), row_bytes_of(params.dout),
            sequence.seqlen_q};
    const float* const all = block.is(Role::weights) ? params.lse : params.delta;
    const uint64_t at = batch * static_cast<uint64_t>(params.lse_batch) +
                        static_cast<uint32_t>(head_q) * static_cast<uint64_t>(params.lse_head) +
                        static_cast<uint32_t>(sequence.q_first);
    numbers = reinterpret_cast<const char*>(all + at);
    dq_sums = dq.sums_of(block, params, head_q);
  }

  // The next head's: few arguments, because all registers are in use.
  FA_DEVICE void next_head(const BwdParams& params) {
    const int64_t of_q = params.q.head, of_dout = params.dout.head, of_numbers = params.lse_head;
    ++head_q;
    q.base += of_q * 2, dout.base += of_dout * 2;
    numbers += of_numbers * static_cast<int64_t>(sizeof(float));
    if constexpr (B::kWithDq) dq_sums += params.dq_blocks * (kSumRows * B::kHeadDim);
  }

  // Begins to load the rows, by a wave of those that do; `set` is where.
  FA_DEVICE void load_rows(const B& block, LdsBytes set) const {
#pragma unroll
    for (int tile = 0; tile < B::kAtOnce; ++tile) {
      const int from = here_uniform(first) + tile * B::kQueries, last = q.rows - 1 - from;
      const LdsBytes to = set + tile * Stage::kTilesBytes;
      const char* const of_rows = rows_from(q, from).base;
      const char* const of_gradients = rows_from(dout, from).base;
      if (last >= B::kQueries - 1) {
        of_q.load(of_rows, to, block.pair);
        of_dout.load(of_gradients, to + Stage::kTileBytes, block.pair);
      } else if (last >= 0) {
        of_q.load_end(of_rows, last, to, block.pair, here(block.lane));
        of_dout.load_end(of_gradients, last, to + Stage::kTileBytes, block.pair, here(block.lane));
      }
    }
  }
  FA_DEVICE void load_numbers(const Turn& turn, float (&number)[B::kAtOnce]) const {
#pragma unroll
    for (int tile = 0; tile < B::kAtOnce; ++tile) {
      const HeadRows rows{turn.numbers, sizeof(float), q.rows};
      const int from = here_uniform(turn.first) + tile * B::kQueries;
      number[tile] = NumberView(rows_from(rows, from), 0).template read_at<float>(place);
    }
  }
  FA_DEVICE float first_term(float number) const { return __builtin_fmaf(number, slope, start); }
};

}  // namespace fa
