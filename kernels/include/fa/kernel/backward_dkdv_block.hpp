// What one workgroup of the dk and dv kernel works on: the types and constants that follow from its config,
// its place in the grid, and what it reads.  kernel/backward_dkdv.hpp says what it does.
#pragma once

#include "fa/kernel/backward_block.hpp"
#include "fa/kernel/scoring.hpp"
#include "fa/tile/dropout_columns.hpp"

namespace fa {

enum class Role { weights, gradients };

template <Gfx kGfx, DType kElement, int kDim, bool kWithFeatures>
struct DkDvBlock {
  static constexpr DType kDType = kElement;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kFeatured = kWithFeatures;
  static constexpr ArchTraits kTraits = traits(kGfx);
  static constexpr DkDvConfig kConfig = dkdv_config(kGfx, kDType, kHeadDim);
  static constexpr DkDvTile kTile = dkdv_tile(kGfx, kDType, kHeadDim);
  static constexpr int kPairs = kConfig.pairs, kQueries = kConfig.queries;
  static constexpr bool kPadded = kConfig.padded_tiles;

  using Unit = UnitOf<kGfx, kDType>;
  static constexpr int kColumns = Unit::kColumns;
  static constexpr int kSteps = kQueries / Unit::kM;     // of a tile's rows
  static constexpr int kSumSteps = kHeadDim / Unit::kM;  // of the sums' rows
  using Tiles = TileRange<kQueries>;
  using Result = typename Unit::C[kSteps];
  using Sums = typename Unit::C[kSumSteps];

  using Stage = TurnedStage<Unit, kQueries, kHeadDim, kTile.threads, kPadded, 2, kConfig.overlaid>;
  using View = BufferView<kQueries, kHeadDim * 2, kTraits.buffer_word3>;
  using OwnView = BufferView<Unit::kN, kHeadDim * 2, kTraits.buffer_word3>;
  using Own = Query<Unit, kHeadDim, kConfig.own_steps, kPadded>;
  using P = Packed<Unit, kQueries, kDType>;
  using Exchange = LaneExchange<Unit, kQueries, kDType>;
  using Operand = PackedOperand<Unit, kQueries, kDType, kPadded>;
  using Drop = ColumnDropout<Unit, kQueries>;
  using Floats = __attribute__((address_space(3))) float*;

  // A tile's numbers per query: what the first product of each role starts from, or lse and delta.
  static constexpr int kRowBytes = 2 * kQueries * sizeof(float);
  static constexpr int kRowsAt = Stage::kBytes;
  static constexpr int kOwnAt = kRowsAt + kRowBytes;
  static constexpr int kOwnBytes = Own::kLdsBytes + Operand::kLdsBytes;  // of a wave
  // Through which a pair's waves exchange P.  Where operands pass through LDS too, it is the place of one of
  // the wave that reads it and overwrites it afterwards.
  static constexpr bool kExchangeInOperand = Operand::kLdsBytes >= Exchange::kBytes;
  static constexpr int kExchangeAt = kOwnAt + 2 * kPairs * kOwnBytes;
  static constexpr int kLdsBytes = kExchangeAt + (kExchangeInOperand ? 0 : kPairs * Exchange::kBytes);
  static_assert(kLdsBytes <= kTraits.lds_bytes, "the tiles do not fit into LDS");
  static_assert(2 * kQueries <= kTile.threads, "a thread per number");

  const BwdArguments arguments;
  const Sequence sequence;
  const int batch, head_k, thread, lane, wave;
  const Role role;
  const int pair;
  const Visibility visible;
  const LdsBytes lds;
  const float factor;  // scale * log2(e)

  FA_DEVICE DkDvBlock(BwdArguments arguments, const BwdParams& params, const Sequence& sequence, LdsBytes lds)
      : arguments(arguments),
        sequence(sequence),
        batch(__builtin_amdgcn_workgroup_id_z()),
        head_k(__builtin_amdgcn_workgroup_id_y()),
        thread(__builtin_amdgcn_workitem_id_x()),
        lane(thread % Unit::kWave),
        wave(uniform(thread / Unit::kWave)),
        role(wave < kPairs ? Role::weights : Role::gradients),
        pair(wave % kPairs),
        visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right},
        lds(lds),
        factor(uniform(Scoring::factor_of(params))) {}

  // The lane that reads tiles and the thread that moves them.  Where registers are short, their addresses are
  // computed for each tile anew.
  FA_DEVICE int reader() const { return kFeatured ? here(lane) : lane; }
  FA_DEVICE int mover() const { return kFeatured ? here(thread) : thread; }

  FA_DEVICE Tiles tiles_of(int first_key, int wave_key) const {
    const int past =
        first_key + kTile.block_n < sequence.seqlen_k ? first_key + kTile.block_n : sequence.seqlen_k;
    const int wave_past = wave_key + Unit::kN < past ? wave_key + Unit::kN : past;
    const int begin = visible.first_row(first_key) / kQueries * kQueries;
    if (wave_key >= past) return {begin, visible.last_row(past - 1), 0, 0, 0, 0};
    return {begin,
            visible.last_row(past - 1),
            visible.first_row(wave_key),
            visible.last_row(wave_past - 1),
            visible.first_row(wave_past - 1),
            visible.last_row(wave_key)};
  }

  FA_DEVICE LdsBytes own_area() const { return lds + kOwnAt + wave * kOwnBytes; }
  FA_DEVICE LdsBytes operand_area() const { return own_area() + Own::kLdsBytes; }
  FA_DEVICE LdsBytes exchange() const {
    if (kExchangeInOperand) return lds + kOwnAt + (kPairs + pair) * kOwnBytes + Own::kLdsBytes;
    return lds + kExchangeAt + pair * Exchange::kBytes;
  }
  FA_DEVICE bool is(Role other) const { return role == other; }

  FA_DEVICE Own load_own(int wave_key) const {
    const BwdParams& params = loaded_here(arguments);
    const BwdInput tensor = is(Role::weights) ? params.k : params.v;
    const bool ragged = params.cu_seqlens_k != nullptr;
    const OwnView view(rows_of(tensor, ragged, batch, head_k, sequence.k_first, sequence.seqlen_k), wave_key);
    const QuerySign sign(is(Role::weights) ? params.scale : 1.0f);
    Unchanged convert;
    return Own(own_area(), view, sign, convert, lane);
  }

  // What a head of q has for tiles of queries.
  struct Source {
    HeadRows q, dout;
    const float *lse, *delta;
  };

  FA_DEVICE Source source(int head_q) const {
    const BwdParams& params = loaded_here(arguments);
    const bool ragged = params.cu_seqlens_q != nullptr;
    const int64_t lse_at =
        (ragged ? 0 : batch) * params.lse_batch + head_q * params.lse_head + sequence.q_first;
    return {rows_of(params.q, ragged, batch, head_q, sequence.q_first, sequence.seqlen_q),
            rows_of(params.dout, ragged, batch, head_q, sequence.q_first, sequence.seqlen_q),
            params.lse + lse_at, params.delta + lse_at};
  }

  // A thread's number of the tile: see kRowBytes.
  FA_DEVICE float load_number(const Source& from, int first) const {
    const int row = first + thread % kQueries;
    if (thread >= 2 * kQueries || row >= sequence.seqlen_q) return 0;
    return (thread < kQueries ? from.lse : from.delta)[row];
  }

  FA_DEVICE void store_number(float value) const {
    if (thread >= 2 * kQueries) return;
    if (thread < kQueries) {
      value = Scoring::shift<kDType>(value);
      if (!kFeatured) value = -value / factor;
    } else if (!kFeatured) {
      value = -value;
    }
    ((Floats)(lds + kRowsAt))[thread] = value;
  }

  // The numbers of the tile's rows that the wave wants, and the one of the lane's row `f`.
  FA_DEVICE Floats numbers() const { return (Floats)(lds + kRowsAt) + (is(Role::weights) ? 0 : kQueries); }
  FA_DEVICE float number(int f) const {
    return numbers()[Unit::held_begin(lane, kQueries) + Unit::held_step(f)];
  }

  FA_DEVICE void begin(Result& result) const {
    if (kFeatured) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        result[step] = typename Unit::C{};
        Unit::settle(result[step]);
      }
      return;
    }
    if constexpr (Unit::kSpreadsRows) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int row = Unit::slot_of_row(step * Unit::kM + Unit::a_row(lane), kQueries);
        static_assert(Unit::slot_of_row(Unit::slot_of_row(4, kQueries), kQueries) == 4, "its own inverse");
        result[step] = Unit::spread_rows(numbers()[row], lane);
      }
    } else {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int f = 0; f < P::kHeld; ++f) element<Unit>(result, c, f) = number(f);
      }
    }
  }

  // Hides from each key the queries that do not see it.
  FA_DEVICE void mask(Result& result, int first, int wave_key) const {
    int begin[kColumns], end[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int key = wave_key + here(Unit::column(lane, c));
      const int from = first + Unit::held_begin(lane, kQueries);
      begin[c] = visible.first_row(key) - from;
      end[c] = visible.last_row(key) - from;
    }
    in_order(result, [&](float value, int c, int f) {
      const int row = Unit::held_step(f);
      return row >= begin[c] && row < end[c] ? value : 0;
    });
  }

  template <class Action>
  FA_DEVICE static void each(Result& result, const Action& action) {
    each_element<Unit, P::kHeld>(result, action);
  }
  template <class Action>
  FA_DEVICE static void in_order(Result& result, const Action& action) {
    each_element<Unit, P::kHeld, true>(result, action);
  }
};

}  // namespace fa
