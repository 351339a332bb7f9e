// The loop of the dk and dv kernel, with dQ (backward_fused.hpp) or without, where loads write straight into
// LDS.  The two kinds of waves are not at the same tiles, so none waits for what another has just made:
//
//   waves with K    S and P of some tiles, dV; dQ of those two turns before
//   waves with V    dP and dS of the tiles before these, dK; and all loads
//
// A turn has B::kAtOnce tiles and one barrier.  Three sets of tiles take turns in LDS, and two of P and dS.
// Turns go through all heads of q without a pause.
#pragma once

#include "fa/kernel/backward_ping_pong.hpp"
#include "fa/kernel/backward_staggered_moves.hpp"

namespace fa {

// dQ of a tile that is not added to its sums yet.
template <class B>
struct LateSums {
  static constexpr bool kAre = B::kConfig.late_sums;
  typename B::Unit::C sum;
  float* to = nullptr;
  int first = Turn::kNone;

  template <class Dq>
  FA_DEVICE void give(const B& block, const Dq& dq, int end) {
    if constexpr (kAre) {
      if (here_uniform(first) < end) dq.give(block, to, first, sum);
      first = Turn::kNone;
    }
  }
};

template <class B, class Dq>
struct Staggered {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  static constexpr int kAhead = B::kConfig.prefetch;
  using Rows = typename Stage::Rows;
  using Turned = typename Stage::Turned;
  using RowOperands = EarlyOperands<Unit, void, B::kSteps, kAhead, Rows>;
  using TurnedOperands = EarlyOperands<Unit, void, B::kSumSteps, kAhead, Turned>;

  const B& block;
  const typename B::Tiles& tiles;
  const typename B::Own& own;
  const Dq& dq;
  typename B::Sums& sums;
  int wave_key;
  typename Unit::C zeros;
  LdsBytes rows, turned;  // what the lane reads of a set's first tile
  LateSums<B>& late;

  // Where P and dS of a tile are, relative to the first.
  FA_DEVICE static int exchange_at(int odd, int tile) {
    return (odd * B::kAtOnce + tile) * B::kExchangeBytes;
  }
  FA_DEVICE static int scores_at(int odd, int tile) { return (odd * B::kAtOnce + tile) * B::Scores::kBytes; }
  // Rows beyond the last are copies of it.
  FA_DEVICE Flag masked(int first) const {
    return {tiles.masked_flag(first).sign | (block.sequence.seqlen_q - first - B::kQueries)};
  }

  // A wave's work on a tile; `at` is its set.
  FA_DEVICE void find(int first, float term, int at, int odd, int tile, const Turn& before) const {
    const bool of_weights = block.is(Role::weights), seen = tiles.seen_flag(first);
    typename B::Result result;
    typename B::P packed;
    if (seen) {
      begin(block, result, term, zeros);
      RowOperands operands(Rows(rows + at).beyond(tile * Stage::kTilesBytes));
      __builtin_amdgcn_s_setprio(3);
      operands.template multiply<B::Own::kSteps>(result, own);
      Unit::pin(result[0]);
    }
    if (of_weights) {
      weights(result, packed, seen, first, odd, tile, before);
    } else {
      gradients(result, packed, seen, first, odd ^ 1, tile);
    }
    if (seen) {
      TurnedOperands operands(Turned(turned + at).beyond(tile * Stage::kTilesBytes));
      __builtin_amdgcn_s_setprio(2);
      const typename B::Operand operand(block.operand_area(), block.lane, packed);
      operands.template multiply<B::Operand::kSteps>(sums, operand);
      __builtin_amdgcn_s_setprio(0);
    }
  }

  // P of a tile, and dQ of a tile of two turns before.
  FA_DEVICE void weights(const typename B::Result& result, typename B::P& packed, bool seen, int first,
                         int odd, int tile, const Turn& before) const {
    const int dq_first = here_uniform(before.first) + tile * B::kQueries;
    const bool adds = B::kWithDq && dq.is_of(block) && dq_first < tiles.end;
    if (seen && adds) {
      Exponentials<B> scores(result);
      add_to_dq(before, dq_first, odd, tile, [&](int gap) { scores.part(block, gap, Dq::gaps()); });
      packed = finish(scores, first, odd, tile);
    } else {
      if (adds) add_to_dq(before, dq_first, odd, tile, Nothing());
      if (seen) {
        if constexpr (!B::kConfig.kept_priority) __builtin_amdgcn_s_setprio(1);
        Exponentials<B> scores(result);
        scores.part(block, 0, 1);
        packed = finish(scores, first, odd, tile);
      }
    }
  }
  template <class Interleave>
  FA_DEVICE void add_to_dq(const Turn& before, int first, int odd, int tile,
                           const Interleave& interleave) const {
    if constexpr (LateSums<B>::kAre) {
      late.sum = dq.find(block, interleave, scores_at(odd, tile));
      late.to = before.dq_sums, late.first = first;
    } else {
      dq.add(block, before.dq_sums, first, interleave, scores_at(odd, tile));
    }
  }
  FA_DEVICE typename B::P finish(Exponentials<B>& scores, int first, int odd, int tile) const {
    if (masked(first)) mask(block, scores.s.result, first, wave_key);
    const typename B::P packed = B::P::of([&](int, int f) { return element<Unit>(scores.s.result, 0, f); });
    B::Exchange::write(block.exchange(0) + exchange_at(odd, tile), block.lane, packed);
    return packed;
  }

  // dS of a tile.
  FA_DEVICE void gradients(const typename B::Result& result, typename B::P& packed, bool seen, int first,
                           int odd, int tile) const {
    if (seen) {
      const typename B::P given = B::Exchange::read(block.exchange(0) + exchange_at(odd, tile), block.lane);
      if constexpr (!B::kConfig.kept_priority) __builtin_amdgcn_s_setprio(1);
      Worked<B> copy(result);
      if (masked(first)) mask(block, copy.result, first, wave_key);
      packed = gradients_of(block, given, copy.result, 0, first, wave_key, false);
    } else if constexpr (B::kWithDq) {
#pragma unroll
      for (int chunk = 0; chunk < B::P::kChunks; ++chunk) packed.chunk[0][chunk] = here(u32x4{});
    }
    if constexpr (B::kWithDq) {
      drop_missing_keys(block, wave_key, packed);
      B::Scores::write(block.scores() + scores_at(odd, tile), block.pair, block.lane, packed);
    }
  }
};

template <class B>
FA_DEVICE void run_staggered(BwdArguments arguments, LdsBytes lds) {
  using Dq = Choice<B::kWithDq, DqPart<B>, NoDq<B>>;
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  constexpr int kRows = B::kAtOnce * B::kQueries;
  const BwdParams params = loaded_at_once(arguments);
  const Sequence found = sequence(params, __builtin_amdgcn_workgroup_id_z());
  const int first_key = __builtin_amdgcn_workgroup_id_x() * B::kTile.block_n;
  if (first_key >= found.seqlen_k) return;
  B block(arguments, params, found, lds);
  const int wave_key = first_key + block.pair * Unit::kN;
  const typename B::Tiles tiles = {
      block.visible.tiles_of_keys_by_bounds(first_key, B::kTile.block_n, wave_key, Unit::kN, B::kQueries)};
  typename B::Sums sums = {};
  if (tiles.begin < tiles.end) {
    const bool of_weights = block.is(Role::weights);
    // No division where there is nothing to divide: all waves would wait for it.
    const int group = params.nheads == params.nheads_k ? 1 : uniform(params.nheads / params.nheads_k);
    Dq dq(block);
    StaggeredMoves<B, Dq> moves(block, params, dq, block.head_k * group, tiles.begin);
    if (!of_weights) moves.load_rows(block, lds);
    const typename Dq::Transposed keys = dq.load(block, params, first_key);
    const typename B::Own own = own_keys(block, params, wave_key);
    Turn now{moves.first, moves.numbers, moves.dq_sums}, last, before;
    float number[B::kAtOnce] = {};
    if (of_weights) moves.load_numbers(now, number);
    // Here, and not before the loads.
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) Unit::settle(sums[step]);
    if constexpr (B::kWithDq) {
      dq.store(block, keys);
      tile_barrier<B::kArch>();
      dq.read(block);
    }
    typename Unit::C zeros = Unit::zero();
    if (B::kConfig.kept_zeros) Unit::settle(zeros);
    const int rows_of = of_weights ? 0 : Stage::kTileBytes;
    LateSums<B> late;
    const Staggered<B, Dq> work{
        block,
        tiles,
        own,
        dq,
        sums,
        wave_key,
        zeros,
        here(lds + rows_of + Stage::Rows::offset(block.lane)),
        here(lds + (Stage::kTileBytes - rows_of) + Stage::Turned::offset(block.lane)),
        late,
    };
    // Where the next turn's tiles go, and the wave's own of this one.
    int at_next = Stage::kSetBytes, at = of_weights ? 0 : 2 * Stage::kSetBytes, odd = 0;
    const int past = block.head_k * group + group;
    const auto proceed = [&] {
      moves.first += kRows;
      if (moves.first < tiles.end) return;
      if (moves.head_q + 1 >= past) {
        moves.first = Turn::kNone;
      } else {
        moves.first = tiles.begin;
        moves.next_head(loaded_here(arguments));
      }
    };
    const auto following = [](int at) { return at == 2 * Stage::kSetBytes ? 0 : at + Stage::kSetBytes; };
    proceed();
    for (int left = B::kWithDq ? 3 : 2; left != 0;) {
      wait_for_loads();
      // The turn's tiles are there, and what the other waves made in the turn before.
      tile_barrier<B::kArch>();
      Turn next;
      float coming[B::kAtOnce];
      if (moves.first < tiles.end) {
        next = {moves.first, moves.numbers, moves.dq_sums};
        if (!of_weights) moves.load_rows(block, lds + at_next);
        proceed();
      } else {
        --left;
      }
      moves.load_numbers(of_weights ? next : now, coming);
      late.give(block, dq, tiles.end);
      const Turn& mine = of_weights ? now : last;
#pragma unroll
      for (int tile = 0; tile < B::kAtOnce; ++tile) {
        if (tile != 0) late.give(block, dq, tiles.end);
        work.find(mine.first + tile * B::kQueries, moves.first_term(number[tile]), at, odd, tile, before);
      }
      before = last, last = now, now = next;
      at = following(at), at_next = following(at_next);
#pragma unroll
      for (int tile = 0; tile < B::kAtOnce; ++tile) number[tile] = coming[tile];
      odd ^= 1;
    }
    late.give(block, dq, tiles.end);
    nothing_in_flight();
  }
  store(block, wave_key, sums);
}

}  // namespace fa
