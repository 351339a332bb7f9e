// The loop of the dk and dv kernel, with dQ (fused.hpp) or without, with loads straight into LDS. The two
// kinds of waves work on different tiles, so neither waits for the other's latest results:
//
//   waves with K    S and P of some tiles, dV; dQ of the tiles two turns before
//   waves with V    dP and dS of the previous tiles, dK; and all loads
//
// A turn has B::kAtOnce tiles and one barrier. LDS holds three sets of tiles in turn, and two of P and dS.
// Turns go through all heads of q without a pause.
#pragma once

#include "device/backward/dkdv/mask_product.hpp"
#include "device/backward/dkdv/ping_pong.hpp"
#include "device/backward/dkdv/staggered_moves.hpp"

namespace fa {

template <class B, class Dq>
struct Staggered {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  static constexpr int kAhead = B::kConfig.prefetch;
  using Rows = typename Stage::Rows;
  using Turned = typename Stage::Turned;
  using RowOperands = EarlyOperands<Unit, void, B::kSteps, kAhead, Rows>;
  // Whether start values are also made for tiles that no key sees. With registers for two tiles' masks, their
  // loads are then free of branches.
  static constexpr bool kSooner = B::kMasked && B::kConfig.waves_per_simd <= 2;
  using TurnedOperands = EarlyOperands<Unit, void, B::kSumSteps, kAhead, Turned>;

  const B& block;
  const typename B::Tiles& tiles;
  const typename B::Own& own;
  const Dq& dq;
  const StaggeredSums<B, Dq>& dq_sums;
  typename B::Sums& sums;
  int wave_key;
  LdsBytes rows, turned;  // places that the lane reads in a set's first tile

  // Place of a tile's P and dS, relative to the first.
  FA_DEVICE static int exchange_at(int odd, int tile) {
    return (odd * B::kAtOnce + tile) * B::kExchangeBytes;
  }
  FA_DEVICE static int scores_at(int odd, int tile) { return (odd * B::kAtOnce + tile) * B::Scores::kBytes; }
  // A wave's work on a tile. `at` is its set. `term()` makes the start values of the first product, while its
  // operands are read. `meanwhile()` runs behind that product, or, with dQ, before everything.
  // `load_mask(early)` runs twice: when start values are made, and when exponentials are.
  template <class Numbers, class Term, class Meanwhile, class LoadMask>
  FA_DEVICE void find(int first, const Numbers& numbers, const Term& term, int at, int odd, int tile,
                      const Meanwhile& meanwhile, const LoadMask& load_mask) const {
    const bool of_weights = block.is(Role::weights);
    if constexpr (B::kWithDq) {
      // First: the loads that this turn waits for at its end, and the additions, which this wait would
      // include.
      meanwhile();
      if (of_weights && dq_sums.adds(tiles, tile)) add_to_dq(odd, tile);
    }
    typename B::Result result;
    RowOperands operands(Rows(rows + at).beyond(tile * Stage::kTilesBytes), Later());
    if constexpr (kSooner) {
      operands.begin();
      term(result);
      load_mask(true);
    }
    if (tiles.seen_flag(first)) {
      if constexpr (!kSooner) {
        operands.begin();
        term(result);
        load_mask(true);
      }
      __builtin_amdgcn_s_setprio(3);
      operands.template multiply<B::Own::kSteps>(result, own);
      Unit::pin(result[0]);
      TurnedOperands turned_operands(Turned(turned + at).beyond(tile * Stage::kTilesBytes));
      if constexpr (!B::kWithDq) meanwhile();
      typename B::P packed;
      if (of_weights) {
        packed = weights(result, first, numbers.cursor, odd, tile);
      } else {
        packed = gradients(result, first, numbers, odd ^ 1, tile);
      }
      load_mask(false);
      __builtin_amdgcn_s_setprio(2);
      const typename B::Operand operand(block.operand_area(), block.lane, packed);
      turned_operands.template multiply<B::Operand::kSteps>(sums, operand);
      __builtin_amdgcn_s_setprio(0);
    } else {
      if constexpr (B::kMasked) __builtin_amdgcn_s_setprio(0);
      if constexpr (!B::kWithDq) meanwhile();
      if constexpr (!kSooner) load_mask(true);
      load_mask(false);
      if constexpr (B::kWithDq) {
        if (!of_weights) leave_nothing(odd ^ 1, tile);
      }
    }
  }

  // P of a tile.
  FA_DEVICE typename B::P weights(const typename B::Result& result, int first, const Cursor<B>& cursor,
                                  int odd, int tile) const {
    Exponentials<B> scores(result);
    __builtin_amdgcn_s_setprio(1);
    scores.part(block, 0, 1);
    // Also if there are rows beyond the last, which are copies of it.
    if (tiles.masked_flag(first)) mask(block, scores.s.result, first, wave_key);
    typename B::P packed = B::P::of([&](int, int f) { return element<Unit>(scores.s.result, 0, f); });
    const LdsBytes exchange = block.exchange(0) + exchange_at(odd, tile);
    B::Exchange::write(exchange, block.lane, packed);
    if (B::kMasked && block.dropout.drops()) {
      drop_weights(block, packed, exchange, head_of(cursor, first), first, wave_key);
    }
    return packed;
  }
  FA_DEVICE void add_to_dq(int odd, int tile) const {
    dq.add(block, dq_sums.of(tile), 0, Nothing(), scores_at(odd, tile));
  }

  // Whether the cursor is at the next head already.
  FA_DEVICE static bool is_beyond(const Cursor<B>& cursor, int first) {
    return here_uniform(cursor.first) <= first;
  }
  FA_DEVICE int head_of(const Cursor<B>& cursor, int first) const {
    const BwdParams& params = loaded_here(block.arguments);
    const float group =
        static_cast<float>(params.nheads) * __builtin_amdgcn_rcpf(static_cast<float>(params.nheads_k));
    const int left = cursor.heads + (is_beyond(cursor, first) ? 1 : 0);
    return (block.head_k + 1) * uniform(static_cast<int>(group + 0.5f)) - 1 - left;
  }
  template <class Numbers>
  FA_DEVICE HeadRows deltas_of(const Numbers& numbers, int first) const {
    const int64_t head = loaded_here(block.arguments).lse_head * static_cast<int64_t>(sizeof(float));
    return {numbers.numbers - (is_beyond(numbers.cursor, first) ? head : 0), sizeof(float),
            block.sequence.seqlen_q};
  }

  // dS of a tile.
  template <class Numbers>
  FA_DEVICE typename B::P gradients(const typename B::Result& result, int first, const Numbers& numbers,
                                    int odd, int tile) const {
    const typename B::P given = B::Exchange::read(block.exchange(0) + exchange_at(odd, tile), block.lane);
    // If dS is also passed on, the other wave waits for it.
    __builtin_amdgcn_s_setprio(B::kWithDq || B::kConfig.kept_priority ? 2 : 1);
    Worked<B> copy(result);
    const Flag masked{tiles.masked_flag(first).sign | block.dropout.sign};
    HeadRows deltas{};
    if constexpr (B::kMasked) {
      if (masked) deltas = deltas_of(numbers, first);
    }
    typename B::P packed = gradients_of(block, given, copy.result, 0, first, wave_key, masked, deltas);
    leave(packed, odd, tile);
    return packed;
  }
  FA_DEVICE void leave(typename B::P& packed, int odd, int tile) const {
    if constexpr (B::kWithDq) {
      drop_missing_keys(block, wave_key, packed);
      B::Scores::write(block.scores() + scores_at(odd, tile), block.pair, block.lane, packed);
    }
  }
  FA_DEVICE void leave_nothing(int odd, int tile) const {
    typename B::P packed;
#pragma unroll
    for (int chunk = 0; chunk < B::P::kChunks; ++chunk) packed.chunk[0][chunk] = here(u32x4{});
    B::Scores::write(block.scores() + scores_at(odd, tile), block.pair, block.lane, packed);
  }
};

// `Mask`: of mask_product.hpp.
template <class B, class Mask>
FA_DEVICE void run_staggered(BwdArguments arguments, const BwdParams& params, LdsBytes lds) {
  using Dq = DqOf<B>;
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  constexpr int kSets = 3 * Stage::kSetBytes;
  const WorkgroupPlace place = B::place_of(params);
  const Sequence found = sequence_of<B>(params, place.batch);
  const int first_key = place.block * B::kTile.block_n;
  if (first_key >= found.seqlen_k) return;
  B block(arguments, params, place, found, lds);
  const int wave_key = first_key + block.pair * Unit::kN;
  typename B::Tiles tiles = {
      block.visible.tiles_of_keys_by_bounds(first_key, B::kTile.block_n, wave_key, Unit::kN, B::kQueries)};
  if constexpr (Mask::kMayHaveRanges) keep_shown_rows(block, first_key, tiles);
  typename B::Sums sums;
  if (tiles.begin < tiles.end) {
    const bool of_weights = block.is(Role::weights);
    // Skips an unneeded division, which all waves would wait for.
    const int group = params.nheads == params.nheads_k ? 1 : uniform(params.nheads / params.nheads_k);
    StaggeredLoads<B> loads(block, params, tiles, group);
    if (!of_weights) loads.begin(block, tiles, arguments, lds);
    Dq dq(block);
    if constexpr (B::kWithDq) dq.begin(block, params, first_key);
    const typename B::Own own = own_keys(block, params, wave_key);
    Mask given(block, wave_key, group, loads);
    typename Mask::Words words[Mask::kSets];
#pragma unroll
    for (int set = 0; set < Mask::kSets; ++set) given.load(words[set], tiles.begin + set * B::kQueries);
    StaggeredNumbers<B, Mask::kPlainNumbers> numbers(block, params, tiles, group);
    StaggeredSums<B, Dq> dq_sums(block, params, tiles, group, dq);
    numbers.load();
    // Placed after the loads.
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) sums[step] = Unit::zero_by_product();
    if constexpr (B::kWithDq) {
      dq.wait();
      tile_barrier<B::kArch>();
      dq.read_direct(block);
    }
    const int rows_of = of_weights ? 0 : Stage::kTileBytes;
    const Staggered<B, Dq> work{
        block,
        tiles,
        own,
        dq,
        dq_sums,
        sums,
        wave_key,
        here(lds + rows_of + Stage::Rows::offset(block.lane)),
        here(lds + (Stage::kTileBytes - rows_of) + Stage::Turned::offset(block.lane)),
    };
    // Places of the next turn's tiles, and of the wave's own tiles of this turn.
    int at_next = Stage::kSetBytes, at = of_weights ? 0 : kSets - Stage::kSetBytes, odd = 0;
    const auto following = [](int at) {
      return here_uniform(at) == kSets - Stage::kSetBytes ? 0 : at + Stage::kSetBytes;
    };
    const int turns = (tiles.end - tiles.begin + Cursor<B>::kRows - 1) / Cursor<B>::kRows * group;
    for (int left = turns + 1; left != 0; --left) {
      const int first = numbers.cursor.first;
      nothing_in_flight();
      // The turn's tiles are there, and the other waves' results of the previous turn.
      tile_barrier<B::kArch>();
      const float term = numbers.first_term(of_weights);
#pragma unroll
      for (int tile = 0; tile < B::kAtOnce; ++tile) {
        typename Mask::Words& own_words = words[tile % Mask::kSets];
        // The tile whose mask comes into the same registers.
        const int next = tile + Mask::kSets;
        const int turn = next < B::kAtOnce ? first
                         : tile == 0       ? numbers.cursor.next(tiles)
                                           : numbers.cursor.first;
        const int next_first = turn + next % B::kAtOnce * B::kQueries;
        if constexpr (B::kMasked) __builtin_amdgcn_s_setprio(2);  // products will follow
        work.find(
            first + tile * B::kQueries, numbers,
            [&](typename B::Result& result) {
              if (B::kMasked && of_weights) {
                given.begin(block, result, own_words, term, tile);
              } else {
                result[0] = Unit::broadcast_half(term, block.lane, tile);
              }
            },
            at, odd, tile,
            [&] {
              if (tile != 0) return;
              numbers.proceed(tiles, arguments);
              numbers.load();
              if (!of_weights && left > 2) {
                loads.begin(block, tiles, arguments, lds + at_next);
                at_next = following(at_next);
              }
            },
            [&](bool early) {
              if (!B::kMasked || early != Mask::kEarly) return;
              if (next == B::kAtOnce && turn != first + Cursor<B>::kRows) given.next_head(block);
              given.load(own_words, next_first);
            });
      }
      if (B::kWithDq && of_weights) dq_sums.proceed(tiles, arguments);
      at = following(at);
      odd ^= 1;
    }
    if constexpr (B::kWithDq) {
      // Only the last turn's dQ remains, without a wait for earlier additions.
      tile_barrier<B::kArch>();
      if (of_weights) {
#pragma unroll
        for (int tile = 0; tile < B::kAtOnce; ++tile) {
          if (dq_sums.adds(tiles, tile)) work.add_to_dq(odd, tile);
        }
      }
    }
  } else {
#pragma unroll
    for (int step = 0; step < B::kSumSteps; ++step) {
      sums[step] = typename Unit::C{};
      Unit::settle(sums[step]);
    }
  }
  store(block, wave_key, sums);
}

}  // namespace fa
