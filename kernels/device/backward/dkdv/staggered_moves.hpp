// Iteration of the loop of dkdv/staggered.hpp over tiles, and its loads of tiles (straight into LDS) and of
// numbers per query.
#pragma once

#include "device/backward/dkdv/moves.hpp"
#include "device/memory/direct.hpp"

namespace fa {

// What the loop stores in LDS, and how it uses arguments and registers.
template <class Shape>
struct StaggeredTiles : Shape {
  static_assert(Shape::kTraits.direct_loads, "tiles.toml: the ISA has no loads straight into LDS");
  static constexpr int kAtOnce = Shape::kConfig.tiles_at_once;
  static constexpr int kCopies = 2 * kAtOnce;  // waves of a pair work on different tiles
  using Stage =
      DirectTensors<typename Shape::Unit, Shape::kQueries, Shape::kHeadDim, Shape::kTile.threads, 2, kAtOnce>;
  using Numbers = OwnNumbers;
  static constexpr int kLdsAlignment = 64;  // see memory/direct.hpp
  static constexpr bool kAsksAtOnce = true, kShortOfScalars = true;
  static constexpr bool kEndsAtOnce = true;  // all waves of a compute unit reach it together

  // Opaque, or the compiler makes pairs of them, whose elements it has to convert.
  FA_DEVICE static float product(float x) { return here(x); }
};

// A position in the tiles of all heads of q that share keys. A cursor some turns late starts before them.
template <class B>
struct Cursor {
  static constexpr int kRows = B::kAtOnce * B::kQueries;
  int first, heads;

  FA_DEVICE Cursor(const typename B::Tiles& tiles, int group, int late)
      : first(tiles.begin - late * kRows), heads(group - 1) {}
  // Start of the next turn's tiles.
  FA_DEVICE int next(const typename B::Tiles& tiles) const {
    return first + kRows < tiles.end || heads == 0 ? first + kRows : tiles.begin;
  }
  // One turn further. Calls `to_next_head()` where the next head's tiles begin.
  template <class Action>
  FA_DEVICE void proceed(const typename B::Tiles& tiles, const Action& to_next_head) {
    first += kRows;
    if (here_uniform(first) < tiles.end) return;
    if (heads == 0) return;
    --heads;
    to_next_head(first - tiles.begin);
    first = tiles.begin;
  }
};

// The tiles loaded by a turn.
template <class B>
struct StaggeredLoads {
  using Lines = typename B::Stage::Lines;
  using Stage = typename B::Stage;

  Cursor<B> cursor;
  const char *q = nullptr, *dout = nullptr;  // start of the turn's rows, in waves that load them
  uint32_t q_bytes, dout_bytes;
  Lines of_q, of_dout;

  FA_DEVICE StaggeredLoads(const B& block, const BwdParams& params, const typename B::Tiles& tiles, int group)
      : cursor(tiles, group, 0),
        of_q(static_cast<uint32_t>(row_bytes_of(params.q)), block.pair, block.lane),
        of_dout(static_cast<uint32_t>(row_bytes_of(params.dout)), block.pair, block.lane) {
    // With a mask all waves find the address: schedules were worse without (docs/dev/kernels-masks.md).
    if (B::kMasked || !block.is(Role::weights)) {
      const uint32_t batch = is_ragged<B>(params.cu_seqlens_q) ? 0 : block.batch;
      const uint32_t head = block.head_k * group, row = block.sequence.q_first + tiles.begin;
      q = row_of(params.q, batch, head, row), dout = row_of(params.dout, batch, head, row);
    }
    q_bytes = static_cast<uint32_t>(row_bytes_of(params.q));
    dout_bytes = static_cast<uint32_t>(row_bytes_of(params.dout));
  }

  // Starts to load them, in a loading wave, into set `set`.
  FA_DEVICE void begin(const B& block, const typename B::Tiles& tiles, BwdArguments arguments, LdsBytes set) {
#pragma unroll
    for (int tile = 0; tile < B::kAtOnce; ++tile) {
      const int last = block.sequence.seqlen_q - 1 - cursor.first - tile * B::kQueries;
      const LdsBytes to = set + tile * Stage::kTilesBytes;
      const char* const rows = q + static_cast<uint64_t>(q_bytes) * (tile * B::kQueries);
      const char* const gradients = dout + static_cast<uint64_t>(dout_bytes) * (tile * B::kQueries);
      if (here_uniform(last) >= B::kQueries - 1) {
        of_q.load(rows, to, block.pair);
        of_dout.load(gradients, to + Stage::kTileBytes, block.pair);
      } else if (last >= 0) {
        of_q.load_end(rows, last, to, block.pair, block.lane_again());
        of_dout.load_end(gradients, last, to + Stage::kTileBytes, block.pair, block.lane_again());
      }
    }
    q += static_cast<uint64_t>(q_bytes) * Cursor<B>::kRows;
    dout += static_cast<uint64_t>(dout_bytes) * Cursor<B>::kRows;
    cursor.proceed(tiles, [&](int done) {
      const BwdParams& params = loaded_here(arguments);
      q += params.q.head * 2 -
           static_cast<int64_t>(static_cast<uint64_t>(q_bytes) * static_cast<uint32_t>(done));
      dout += params.dout.head * 2 -
              static_cast<int64_t>(static_cast<uint64_t>(dout_bytes) * static_cast<uint32_t>(done));
    });
  }
};

// The tiles in a wave's work, and the start values of their first product: a lane has the number of a row of
// the first tile or, in the upper half of the wave, of the second. kPlain: numbers lack the division by
// softmax_scale. They are added to values without it.
template <class B, bool kPlain = false>
struct StaggeredNumbers {
  using Unit = typename B::Unit;
  static_assert(!RaisedOf<B>::kIs, "P and dout are as they are");

  Cursor<B> cursor;
  const char* numbers;  // of the head
  int row;              // of the lane, times the size of a number
  int last;             // of all rows
  float slope, start;
  float number = 0;

  FA_DEVICE StaggeredNumbers(const B& block, const BwdParams& params, const typename B::Tiles& tiles,
                             int group)
      : cursor(tiles, group, block.is(Role::weights) ? 0 : 1) {
    const bool of_weights = block.is(Role::weights);
    const float inverse = kPlain ? 1 / Scoring::kLog2e : __builtin_amdgcn_rcpf(block.factor);
    const float of_delta = B::kMasked ? late_minus(params) : -1.0f;
    slope = uniform(of_weights ? (kPlain ? -1.0f : -Scoring::kLog2e * inverse) : of_delta);
    start = uniform(of_weights ? Scoring::kGain<B::kDType> * inverse : 0.0f);
    const int own = Unit::slot_of_row(Unit::a_row(block.lane), B::kQueries);
    row =
        (own + (B::kAtOnce > 1 ? block.lane / Unit::kM * B::kQueries : 0)) * static_cast<int>(sizeof(float));
    last = (block.sequence.seqlen_q - 1) * static_cast<int>(sizeof(float));
    const uint32_t batch = is_ragged<B>(params.cu_seqlens_q) ? 0 : block.batch;
    const float* const all = of_weights ? params.lse : params.delta;
    const uint64_t at = batch * static_cast<uint64_t>(params.lse_batch) +
                        static_cast<uint32_t>(block.head_k * group) * static_cast<uint64_t>(params.lse_head) +
                        static_cast<uint32_t>(block.sequence.q_first);
    numbers = reinterpret_cast<const char*>(all + at);
  }

  // Starts to load the numbers of the cursor's turn, with the last row's number for all rows beyond it.
  FA_DEVICE void load() {
    const int at = row + here_uniform(cursor.first) * static_cast<int>(sizeof(float));
    const uint32_t offset = static_cast<uint32_t>(at < last ? at < 0 ? 0 : at : last);
    using Global = __attribute__((address_space(1))) const float*;
    number = *(Global)(numbers + offset);
  }
  FA_DEVICE void proceed(const typename B::Tiles& tiles, BwdArguments arguments) {
    cursor.proceed(tiles, [&](int) {
      numbers += loaded_here(arguments).lse_head * static_cast<int64_t>(sizeof(float));
    });
  }
  FA_DEVICE float first_term(bool of_weights) const {
    const float finite = B::kMasked && of_weights ? Scoring::masked_lse(number) : number;
    return __builtin_fmaf(finite, slope, start);
  }
};

// The tiles whose dQ is added up, two turns late.
template <class B, class Dq>
struct StaggeredSums {
  Cursor<B> cursor;
  float* sums;  // of the turn's first tile

  FA_DEVICE StaggeredSums(const B& block, const BwdParams& params, const typename B::Tiles& tiles, int group,
                          const Dq& dq)
      : cursor(tiles, group, 2), sums(dq.sums_of(block, params, block.head_k * group)) {
    sums += static_cast<int64_t>(cursor.first / B::kQueries) * (B::kQueries * B::kHeadDim);
  }
  FA_DEVICE Flag adds(const typename B::Tiles& tiles, int tile) const {
    const int first = cursor.first + tile * B::kQueries;
    return {(first - tiles.end) & (tiles.begin - 1 - first)};
  }
  FA_DEVICE float* of(int tile) const { return sums + tile * (B::kQueries * B::kHeadDim); }
  FA_DEVICE void proceed(const typename B::Tiles& tiles, BwdArguments arguments) {
    sums += Cursor<B>::kRows * B::kHeadDim;
    cursor.proceed(tiles, [&](int done) {
      sums += loaded_here(arguments).dq_blocks * (kSumRows * B::kHeadDim) - done * B::kHeadDim;
    });
  }
};

}  // namespace fa
