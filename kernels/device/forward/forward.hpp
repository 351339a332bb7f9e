// Forward attention: a workgroup computes a block of queries of one head. Each wave has a step's columns of
// it and computes one tile of keys after another:
//
//   S^T = K * Q^T          lanes are queries: a query's scores stay in (almost) one lane
//   P   = online softmax   fp32, in registers
//   O^T += V^T * P^T       P^T is the result of the first product, in its own layout
//
// Windows, softcap, ALiBi, ragged batches and pages are branches of whole waves.
#pragma once

#include "device/arch/current.hpp"
#include "device/forward/coded_scores.hpp"
#include "device/forward/eager.hpp"
#include "device/forward/fp8_scores.hpp"
#include "device/forward/int8_scores.hpp"
#include "device/forward/own_keys.hpp"
#include "device/forward/own_vector.hpp"
#include "device/forward/parts/block.hpp"
#include "device/forward/parts/direct.hpp"
#include "device/forward/parts/direct_slots.hpp"
#include "device/forward/parts/epilogue.hpp"
#include "device/forward/parts/features.hpp"
#include "device/forward/parts/in_turn.hpp"
#include "device/forward/parts/products.hpp"
#include "device/forward/parts/prologue.hpp"
#include "device/forward/parts/schedule.hpp"
#include "device/forward/parts/shown_keys.hpp"
#include "device/forward/parts/source.hpp"
#include "device/masks/bias.hpp"
#include "device/masks/dense_mask.hpp"

namespace fa {

// Whether a condition holds for all threads of the workgroup. Overwrites the tiles in LDS.
template <class B>
FA_DEVICE bool all_threads(const B& block, bool condition) {
  using Flag = __attribute__((address_space(3))) int*;
  const Flag flags = (Flag)block.k_tile;
  workgroup_barrier();
  const int failed = any_lane<B::Unit::kWave>(!condition);
  flags[block.wave] = failed;
  workgroup_barrier();
  const bool any = any_lane<B::Unit::kWave>(flags[block.lane % B::kConfig.waves] != 0);
  workgroup_barrier();
  return !any;
}

// Computes and stores the rows from block_row on. Returns false and stores nothing if a value cannot be
// narrowed. The result is the same for all threads.
template <class B>
FA_DEVICE bool attend(const B& block, int block_row) {
  using Unit = typename B::Unit;
  using Scores = typename B::Scores;
  const FwdParams& params = block.params;
  const int wave_row = B::kPacked ? block_row : block_row + block.step_of_rows() * Unit::kN;
  const Choice<B::kMasked, MaskedTiles<B>, AllTiles<B>> shown(block, block_row);
  const typename B::Tiles tiles = shown.seen_of(block.tiles(block_row, wave_row));
  const Slopes<B> slopes(block, wave_row);
  using Unscaled = Choice<B::kFp8, Fp8Scores<B>, Choice<B::kCoded, CodedScores<B>, PlainScores<B>>>;
  Choice<B::kCounts, Int8Scores<B>, Unscaled> coded(block, wave_row);
  const Bias bias{__builtin_fabsf(coded.scale()), params.softcap, slopes.any()};
  const bool biased = B::kFeatured && uniform(static_cast<int>(bias.any())) != 0;
  const typename B::Drop dropout = dropout_of(block);
  const float scale = B::kCounts || coded.scale_is_zero() ? 1 : __builtin_fabsf(coded.scale());
  const Choice<B::kMasked, DenseMask<B, B::kMasks, B::kHiding>, NoMask<B>> given(block, wave_row,
                                                                                 scale * B::kScoreUnit);
  typename B::Softmax softmax(
      given.softmax_factor((biased || B::kCounts ? 1 : scale * Bias::kLog2e) * B::kScoreUnit));
  if constexpr (B::kDropsLate) softmax.drop_if(params.dropout_below != 0);
  typename B::Convert convert;
  coded.begin(convert);
  if constexpr (B::kCounts && (B::kInTurn || B::kDirect)) softmax.begin_scales(coded);
  typename B::Out o;
  if (!B::kConfig.short_prologue || tiles.begin >= tiles.end)
    clear<B, B::kCounts && B::kInTurn>(o);  // else after the first loads
  if constexpr (B::kDirect) {
    if (tiles.begin < tiles.end) {
      const KeyPlace place = key_place(block, tiles.begin, block.sequence.seqlen_k);
      Choice<B::kSlots, SlotMoves<B>, DirectMoves<B>> moves(
          block, rows_at(place, params.k, params.k_batch, params.k_head, params.k_row),
          rows_at(place, params.v, params.v_batch, params.v_head, params.v_row));
      if constexpr (B::kSlots) {
        moves.load_first(block, tiles.begin, tiles.end);
      } else {
        moves.load(block, 0);
        if constexpr (B::kCounts) softmax.load_scales(tiles.begin);
      }
      const typename B::Q query = load_query(block, wave_row, convert, coded);
      hasten_no_more<B>();
      clear<B, true>(o);
      [[maybe_unused]] typename decltype(given)::Early early;
      if constexpr (decltype(given)::kInTurn) given.begin_first(early, tiles, shown);
      const auto mask = [&](Scores& s, int of_tile) {
        const int first = here_uniform(of_tile);  // or its derived values occupy registers through the loop
        if constexpr (decltype(given)::kInTurn) {
          given.apply_in_turn(s, first, early, shown);
        } else if constexpr (B::kMasked) {
          const Flag needed = shown.needs_mask(first);
          typename decltype(given)::Early none;
          given.begin(none, first, needed);
          // One branch for all kinds if nothing is needed.
          if (needed) given.apply(s, first, none, needed);
        }
        if (first < tiles.unmasked_begin) mask_begin(block, mask_of(block), s, first, wave_row);
        if (first + B::kKeys > tiles.unmasked_end) mask_end(block, mask_of(block), s, first, wave_row);
      };
      if constexpr (B::kSlots) {
        direct_slots(block, tiles, moves, query, o, softmax, mask);
      } else {
        direct(block, tiles, moves, query, o, softmax, [&](Scores& s, int first) {
          const auto hide = [&] { mask(s, first); };
          if constexpr (B::Softmax::kIsEager) {
            return softmax.template update<B::kOutSteps>(s, o, block.reader(), tiles.hidden(first), hide);
          } else {
            softmax.template update<B::kOutSteps>(s, o, block.reader(), B::kMasked ? -1 : tiles.hidden(first),
                                                  hide, late_bits_of(block, first, wave_row));
            return true;
          }
        });
      }
    }
  } else if (tiles.begin < tiles.end) {
    // Nothing is read beyond the last tile of a part.
    const KeyPlace place = key_place(block, 0, B::kPacked ? tiles.end : block.sequence.seqlen_k);
    const auto k = coded.keys(place);
    const auto v = coded.values(place);
    [[maybe_unused]] Choice<B::kEarlyLoads, EarlyCodes<B>, Nothing> early_codes;
    [[maybe_unused]] typename B::Q::Begun begun;
    if constexpr (B::kEarlyLoads) {
      early_codes.load(block, k, v, tiles.begin + block.wave * B::kKeys, [&] {
        if constexpr (B::kEarlyQuery) begin_query(block, wave_row, begun);
      });
    }
    const typename B::Q query = load_query(block, wave_row, convert, coded, begun);
    hasten_no_more<B>();
    if constexpr (B::kConfig.short_prologue) clear<B, true>(o);
    typename decltype(given)::Early early;
    [[maybe_unused]] Flag needs_mask{0};  // for a tile
    if constexpr (decltype(given)::kInTurn) given.begin_first(early, tiles, shown);
    const auto before = [&]([[maybe_unused]] int first) {
      if constexpr (B::kCounts && !B::kInTurn) coded.load_scales(first);
      if constexpr (B::kMasked && !decltype(given)::kInTurn) {
        needs_mask = shown.needs_mask(first);
        given.begin(early, first, needs_mask);
      }
    };
    const auto products = [&](Scores& s, const typename B::Operands& prefetched, int at = 0) {
      if constexpr (B::kCounts && !B::kInTurn) {
        coded.begin_counts(s);
      } else {
        softmax.begin(s);
      }
      if constexpr (!B::kOwnKeys && !B::kInTurn) add_scores(block, s, query, prefetched, at);
    };
    const auto mask = [&](Scores& s, int first) {
      if constexpr (decltype(given)::kInTurn) {
        given.apply_in_turn(s, first, early, shown);
      } else if constexpr (B::kMasked) {
        given.apply(s, first, early, needs_mask);
      }
      if (first < tiles.unmasked_begin) mask_begin(block, mask_of(block), s, first, wave_row);
      if (first + B::kKeys > tiles.unmasked_end) mask_end(block, mask_of(block), s, first, wave_row);
    };
    const auto weights = [&](Scores& s, int first) {
      if constexpr (B::kCounts && !B::kInTurn) {
        coded.count(s, softmax);
      } else {
        coded.descale(s);
      }
      if (biased) {
        bias.template apply<Unit, B::kKeys>(
            s, first, block.lane,
            [&](int c) {
              return block.visible.diagonal(block.query_of(wave_row + here(Unit::column(block.lane, c))));
            },
            [&](int c) { return slopes.of(c); });
      }
      const auto hide = [&] { mask(s, first); };
      if constexpr (B::kLateMask) {
        softmax.template update<B::kOutSteps>(s, o, block.reader(), -1, hide,
                                              late_bits_of(block, first, wave_row),
                                              given.late(first, early, needs_mask));
      } else {
        softmax.template update<B::kOutSteps>(s, o, block.reader(), B::kMasked ? -1 : tiles.hidden(first),
                                              hide, late_bits_of(block, first, wave_row));
      }
      coded.weigh(s, o);
    };
    const auto scores = [&](Scores& s, int first) {
      if constexpr (B::kMasked || B::kCounts) before(first);
      const bool dropping = B::kDrops && dropout.any();
      const uint32_t kept = dropping ? kept_bits(block, dropout, first, wave_row) : 0;
      if constexpr (!B::kOwnKeys) products(s, prefetch_keys(block, 0));
      weights(s, first);
      if (dropping) B::Drop::apply(s, kept);
    };
    if constexpr (B::kEarlyLoads) {
      own_keys_early(block, tiles, k, v, early_codes, query, o, softmax, convert, weights);
    } else if constexpr (B::kOwnKeys && !B::kTraits.matrix_instructions()) {
      own_vector(block, tiles, k, v, query, o, softmax, convert, weights);
    } else if constexpr (B::kOwnKeys) {
      own_keys(block, tiles, k, v, query, o, softmax, convert, weights);
    } else if constexpr (B::kConfig.schedule == Schedule::one_stage) {
      one_stage(block, tiles, k, v, o, convert, scores);
    } else if constexpr (B::kInTurn) {
      slots_in_turn(block, tiles, k, v, query, o, softmax, convert, mask);
    } else if constexpr (B::kEager) {
      eager(block, tiles, k, v, query, o, softmax, convert, mask);
    } else if constexpr (B::kConfig.schedule == Schedule::pipelined) {
      pipelined(block, tiles, k, v, o, convert, before, products, weights);
    } else if constexpr (B::kConfig.schedule == Schedule::two_tiles_in_turn) {
      two_tiles_in_turn(block, tiles, k, v, o, convert, before, products, weights);
    } else if constexpr (B::kTwoTiles) {
      two_tiles(block, tiles, k, v, o, convert, before, products, weights);
    } else {
      two_stages(block, tiles, k, v, o, convert, scores);
    }
    coded.finish(o);
  }
  if (B::kNarrow && !all_threads(block, convert.exact())) return false;
  if constexpr (B::kOwnKeys) {
    typename B::Stored stored;
    join_waves(block, o, softmax, coded.factor_of_out(), stored);
    store_rows(block, wave_row, stored, softmax);
  } else {
    store_rows(block, wave_row, o, softmax);
  }
  return true;
}

// Calls `attend` for the workgroup's block of rows and returns its result.
template <class B>
FA_DEVICE bool run_forward(const FwdParams& params, LdsBytes lds) {
  const WorkgroupPlace place = place_of<B>(params);
  const Sequence sequence = uniform_sequence(params, place.batch);
  const B block(params, sequence, place, lds);
  const int block_row = block.first_row();
  return block_row >= block.rows() || attend(block, block_row);
}

// As attend_block, with a short prologue. Changes the sequence's fields of `params`.
template <class Plain>
FA_DEVICE bool run_in_short(FwdParams& params, LdsBytes lds) {
  const WorkgroupPlace place = place_of<Plain>(params);
  if constexpr (Plain::kFp8Values) descale<Plain>(params, place);
  const Sequence sequence = Plain::kMasked || Plain::kCounts
                                ? Sequence{0, params.seqlen_q, 0, params.seqlen_k}
                                : settled_sequence<!Plain::kFp8>(params, place.batch);
  const Plain block(params, sequence, place, lds);
  const int block_row = block.first_row();
  return block_row >= block.rows() || attend(block, block_row);
}

// Runs the plain loop with a short prologue. False: the other loop has to compute the rows.
template <class Plain>
FA_DEVICE bool run_plain(Arguments arguments, LdsBytes lds) {
  if constexpr (Plain::kHastens) prioritise<Plain, 3>();
  FwdParams params = loaded_at_once(arguments);
  static_assert(!Plain::kConfig.short_prologue || !Plain::kNarrow, "narrowed values need the featured loop");
  // Opaque, or the compiler puts the other loop first, and keeps these arguments in registers through it.
  const int featured = here_uniform(static_cast<int>(params.rare & kHasFeatures));
  if (featured == 0) run_in_short<Plain>(params, lds);
  return here_uniform(featured) == 0;
}

// Defines the kernel `name` of an op with both loops.
#define FA_FORWARD_KERNEL(name, dtype, head_dim, op)                                                        \
  FA_KERNEL(forward, op, dtype, head_dim)                                                                   \
  name(const fa::FwdParams params) {                                                                        \
    const fa::Arguments arguments = fa::kernel_arguments();                                                 \
    using Plain = fa::Block<fa::kCurrentGfx, dtype, head_dim, false, fa::Op::op>;                           \
    using Featured = fa::Block<fa::kCurrentGfx, dtype, head_dim, true, fa::Op::op>;                         \
    __attribute__((                                                                                         \
        shared,                                                                                             \
        aligned(Plain::kLdsAlignment))) static char lds[fa::larger(Plain::kLdsBytes, Featured::kLdsBytes)]; \
    if (Plain::kConfig.short_prologue                                                                       \
            ? !fa::run_plain<Plain>(arguments, (fa::LdsBytes)lds)                                           \
            : fa::featured(params) || !fa::run_forward<Plain>(params, (fa::LdsBytes)lds)) {                 \
      fa::run_forward<Featured>(fa::reloaded(arguments), (fa::LdsBytes)lds);                                \
      asm volatile("; keeps the ends of the two apart, which must not share registers");                    \
    }                                                                                                       \
  }

#define FA_FORWARD(name, dtype, head_dim) FA_FORWARD_KERNEL(name, dtype, head_dim, fwd)
#define FA_DECODE(name, dtype, head_dim) FA_FORWARD_KERNEL(name, dtype, head_dim, decode)

}  // namespace fa
