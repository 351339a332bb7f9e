// The part of dQ = dS * K computed and added by a wave of the fused kernel.
#pragma once

#include "device/backward/dkdv/moves.hpp"
#include "device/memory/direct.hpp"

namespace fa {

// A wave's part of dQ's tile: steps of its rows and columns, and steps of the keys.
template <class B>
struct DqPart {
  using Unit = typename B::Unit;
  using Scores = typename B::Scores;
  static constexpr int kParts = B::kSteps * B::kSumSteps;
  static constexpr int kWaves = B::kConfig.ping_pong ? B::kPairs : 2 * B::kPairs;
  static constexpr int kSplits = kWaves / kParts > 1 ? kWaves / kParts : 1;
  static constexpr int kKeySteps = B::kTile.block_n / Unit::kK / kSplits;
  static constexpr bool kAllHaveParts = kParts * kSplits == kWaves;  // every wave that may have one
  static_assert(kParts <= kWaves, "a wave has one part at most");
  using Transposed = TransposedStage<Unit, B::kTile.block_n, B::kHeadDim, B::kTile.threads, false, 1, true>;
  static_assert(Transposed::kBytes <= B::kLdsBytes, "K^T fits into LDS once");

  const int index;
  typename Unit::A keys[kKeySteps];  // K^T

  FA_DEVICE explicit DqPart(const B& block) : index(B::kConfig.ping_pong ? block.pair : block.wave) {}

  // Waves without a part use K^T's registers for something else.
  FA_DEVICE void keep_places(u32x4 places) { keys[0] = here(places); }
  FA_DEVICE u32x4 kept() const { return keys[0]; }

  FA_DEVICE bool is_of(const B& block) const {
    return (!B::kConfig.ping_pong || block.is(Role::weights)) && index < kParts * kSplits;
  }
  FA_DEVICE int row_step() const { return index % kParts / B::kSumSteps; }
  FA_DEVICE int column_step() const { return index % kParts % B::kSumSteps; }
  FA_DEVICE int unit(int step, int lane) const {
    return ((index / kParts * kKeySteps + step) * Unit::kK + Unit::run_begin(lane)) / 8;
  }

  // Reads the workgroup's keys. Needs free LDS and all waves.
  FA_DEVICE void load(const B& block, int first_key) {
    keep(block, load(block, loaded_here(block.arguments), first_key));
  }

  // In parts. If rows of a tile are stored at the same time, K^T is behind them.
  static constexpr int kKeptAt = B::kConfig.ping_pong ? B::kLdsBytes - Transposed::kBytes : 0;
  static_assert(!B::kConfig.ping_pong || kKeptAt >= B::Stage::kRowsEnd, "there is room for both");
  FA_DEVICE Transposed load(const B& block, const BwdParams& params, int first_key) {
    const Sequence& sequence = block.sequence;
    using View = BufferView<B::kTile.block_n, B::kHeadDim * 2, B::kTraits.buffer_word3>;
    Transposed stage;
    if constexpr (B::kConfig.ping_pong) {
      const HeadRows rows = keys_from(block, params, params.k, first_key);
      stage.load([&](int) { return View(rows, 0); }, block.thread);
    } else {
      const HeadRows rows = rows_of(params.k, params.cu_seqlens_k != nullptr, block.batch, block.head_k,
                                    sequence.k_first, sequence.seqlen_k);
      stage.load([&](int) { return View(rows, first_key); }, block.thread);
    }
    return stage;
  }
  FA_DEVICE void keep(const B& block, const Transposed& stage) {
    store(block, stage);
    workgroup_barrier();
    read(block);
  }
  FA_DEVICE void store(const B& block, const Transposed& stage) const {
    stage.store_transposed(block.lds + kKeptAt, block.thread);
  }
  FA_DEVICE void read(const B& block) {
    const int row = Unit::slot_of_row(Unit::column(block.lane, 0), B::kHeadDim);
    const LdsBytes tile = Transposed::TransposedTile::period(block.lds + kKeptAt, column_step());
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      keys[i] = Transposed::TransposedTile::template read<typename Unit::A>(tile, row, unit(i, block.lane));
    }
  }

  // For transposed reads: rows of keys are loaded straight into LDS, behind the first set of tiles.
  static constexpr bool kDirectKeys = Scores::kTurned;
  // Number of loading waves. If rows have three pieces of 64 bytes, a multiple of three.
  static constexpr int kLoaders = B::kHeadDim % 64 == 0 ? 2 * B::kPairs : 3 * B::kPairs / 2;
  using Direct = DirectStage<Unit, B::kTile.block_n, B::kHeadDim, kLoaders * Unit::kWave, false>;
  FA_DEVICE void begin(const B& block, const BwdParams& params, int first_key) const {
    static_assert(B::Stage::kRowsEnd + Direct::Tile::kBytes <= B::kLdsBytes, "there is room for both");
    if (kLoaders < 2 * B::kPairs && block.wave >= kLoaders) return;
    const HeadRows rows = keys_from(block, params, params.k, first_key);
    const typename Direct::Lines lines(static_cast<uint32_t>(rows.row_bytes), block.wave, block.lane);
    const LdsBytes to = block.lds + B::Stage::kRowsEnd;
    if (rows.rows >= B::kTile.block_n) {
      lines.load(rows.base, to, block.wave);
    } else {
      lines.load_end(rows.base, rows.rows - 1, to, block.wave, block.lane);
    }
  }
  // Waits for these loads only. The loads of own rows and of a number behind them stay in flight.
  FA_DEVICE static void wait() { __builtin_amdgcn_s_waitcnt(0x0f70 | (B::Own::kSteps + 1)); }
  FA_DEVICE void read_direct(const B& block) {
    // Elements in their own order instead of the slots' order: lanes are columns of dQ. Rows, in the order of
    // slots, are in TurnedScoreTile's order.
    const int row = block.lane / 32 * 8 + block.lane % 16 / 4;
    const LdsBytes first = block.lds + B::Stage::kRowsEnd + column_step() * Direct::kChunkBytes + row * 64 +
                           block.lane % 32 / 16 * 32 + block.lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      const int step = index / kParts % kSplits * kKeySteps + i;
      const LdsBytes chunk = first + step * Direct::kPieces * Direct::kChunkBytes;
      keys[i].lo = read_turned(chunk);
      keys[i].hi = read_turned(chunk + 4 * 64);
    }
  }

  // Number of gaps: parts of the product followed by other work.
  static constexpr int gaps() {
    if constexpr (B::kConfig.ping_pong) return kKeySteps * Unit::kParts;
    return kKeySteps;
  }

  // The workgroup's keys' part of dQ for a tile of queries. `interleave(gap)`: see read_ahead. `at`: offset
  // of the tile's gradients of scores from the first place.
  template <class Interleave>
  FA_DEVICE typename Unit::C product(const B& block, const Interleave& interleave, int at) const {
    typename Unit::C sum = Unit::zero();
    const auto read = [&] {
      if constexpr (Scores::kTurned) {
        const typename Scores::Reader scores(block.scores() + at, index / kParts * kKeySteps * Unit::kK,
                                             block.lane);
        return [=](int i) { return scores.read(i); };
      } else {
        const LdsBytes tile = Scores::Tile::period(block.scores() + at, row_step());
        if constexpr (B::kConfig.ping_pong) {
          const typename Scores::Tile::template Row<typename Unit::A> row(tile, Unit::a_row(block.lane),
                                                                          unit(0, block.lane));
          return [=](int i) { return row.read(i * (Unit::kK / 8)); };
        } else {
          return [&, tile](int i) {
            return Scores::Tile::template read<typename Unit::A>(tile, Unit::a_row(block.lane),
                                                                 unit(i, block.lane));
          };
        }
      }
    }();
    const auto multiply = [&](int i, const typename Unit::A& a) {
      const typename Unit::B b{{keys[i]}};
      Unit::multiply(sum, a, b);
      if constexpr (B::kConfig.ping_pong) {
        if (i == 0) Unit::keep_apart(sum, a, b);
      }
    };
    if constexpr (gaps() == 2 * kKeySteps) {
      read_ahead_of_halves<kKeySteps, B::kConfig.prefetch>(
          read,
          [&](int i, int half, const typename Unit::A& a) {
            const typename Unit::B b{{keys[i]}};
            Unit::multiply_half(sum, a, b, half);
            if (i == 0 && half == 0) Unit::keep_apart(sum, a, b);
          },
          interleave);
    } else {
      // Exponentials need registers at the same time.
      constexpr int kAhead = B::kConfig.tight_registers ? B::kConfig.prefetch / 2 : B::kConfig.prefetch;
      read_ahead<kKeySteps, kAhead>(read, multiply, interleave);
    }
    Unit::settle(sum);
    return sum;
  }

  // Adds it to the tile of queries from `first` on.
  template <class Interleave>
  FA_DEVICE void add(const B& block, float* sums, int first, const Interleave& interleave, int at = 0) const {
    const typename Unit::C sum = product(block, interleave, at);
    float* to = sums + static_cast<int64_t>(first / Unit::kM * B::kSumSteps) * (Unit::kM * Unit::kN);
    // Opaque, or the lane's part of the address is added to it once for all tiles, in vector registers.
    if constexpr (!B::kConfig.ping_pong) asm volatile("" : "+s"(to));
    add_rows(block, to, sum, 0, Unit::kRows);
  }
  // Adds its registers from `begin` to `end`.
  FA_DEVICE static void add_rows(const B& block, float* to, const typename Unit::C& sum, int begin, int end) {
    const int lane = block.passer();
    float value[Unit::kRows];
#pragma unroll
    for (int r = begin; r < end; ++r) {
      value[r] = B::kConfig.ping_pong ? here(static_cast<float>(sum[r])) : static_cast<float>(sum[r]);
    }
#pragma unroll
    for (int r = begin; r < end; ++r) add_float(to, r * Unit::kWave + lane, value[r]);
  }

  // Target of the part of the sequence's first tile.
  FA_DEVICE float* sums_of(const B& block, int head_q) const {
    return sums_of(block, loaded_here(block.arguments), head_q);
  }
  FA_DEVICE float* sums_of(const B& block, const BwdParams& params, int head_q) const {
    const int64_t blocks =
        head_q * params.dq_blocks + first_sum_block(params, block.batch, block.sequence.q_first);
    const int64_t step = (blocks * (kSumRows / Unit::kM) + row_step()) * B::kSumSteps + column_step();
    return params.dq_sums + step * (Unit::kM * Unit::kN);
  }
};

// Replaces DqPart in kernels without dQ.
template <class B>
struct NoDq {
  static constexpr bool kAllHaveParts = false, kDirectKeys = false;
  struct Transposed {};
  static constexpr int gaps() { return 1; }
  FA_DEVICE explicit NoDq(const B&) {}
  FA_DEVICE Transposed load(const B&, const BwdParams&, int) { return {}; }
  FA_DEVICE void load(const B&, int) {}
  FA_DEVICE void store(const B&, const Transposed&) const {}
  FA_DEVICE void read(const B&) {}
  FA_DEVICE void keep_places(u32x4) {}
  FA_DEVICE u32x4 kept() const { return {}; }
  FA_DEVICE bool is_of(const B&) const { return false; }
  FA_DEVICE float* sums_of(const B&, const BwdParams&, int) const { return nullptr; }
  template <class Interleave>
  FA_DEVICE void add(const B&, float*, int, const Interleave&, int = 0) const {}
};

template <class B>
using DqOf = Choice<B::kWithDq, DqPart<B>, NoDq<B>>;

// Zeros for keys beyond the last: their scores may be anything.
template <class B>
FA_DEVICE void drop_missing_keys(const B& block, int wave_key, typename B::P& packed) {
  if (here_uniform(wave_key) + B::Unit::kN <= block.sequence.seqlen_k) return;
  const bool there = wave_key + B::Unit::column(here(block.lane), 0) < block.sequence.seqlen_k;
  const uint32_t all = there ? ~0u : 0u;
#pragma unroll
  for (int chunk = 0; chunk < B::P::kChunks; ++chunk) {
#pragma unroll
    for (int word = 0; word < B::P::kChunk / 2; ++word) packed.chunk[0][chunk][word] &= all;
  }
}

}  // namespace fa
