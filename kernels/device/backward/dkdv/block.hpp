// The work of one workgroup of the dk and dv kernel: types and constants derived from its config, its place
// in the grid, and its inputs. backward/dkdv/loop.hpp has the algorithm.
#pragma once

#include "device/backward/parts/block.hpp"
#include "device/backward/parts/late_dropout.hpp"
#include "device/memory/direct.hpp"
#include "device/memory/uneven_stage.hpp"
#include "device/scores/dropout_columns.hpp"
#include "device/scores/score_tile.hpp"

namespace fa {

enum class Role { weights, gradients };

// kHasDq: for fused.hpp's kernel, which also computes dq. kOfValues: the head dim of v and dout. If
// different, dkdv_uneven.hpp has the loop. kWithMask: with a mask or bias (dkdv/key_mask.hpp).
template <Gfx kGfx, DType kElement, int kDim, Op kOp, bool kWithFeatures, bool kHasDq = false,
          int kOfValues = kDim, bool kWithMask = false>
struct DkDvBlock {
  static constexpr Gfx kArch = kGfx;
  static constexpr bool kWithDq = kHasDq, kMasked = kWithMask;
  static constexpr DType kDType = kElement;
  static constexpr int kHeadDim = kDim, kValueDim = kOfValues;
  static constexpr bool kUneven = kValueDim != kHeadDim;
  static constexpr bool kFeatured = kWithFeatures;
  static constexpr ArchTraits kTraits = traits(kGfx);
  static constexpr DkDvConfig kConfig = dkdv_config(kOp, kGfx, kDType, kHeadDim, kFeatured);
  FA_REQUIRE_ROW(kOp, kConfig.pairs > 0);
  static constexpr DkDvTile kTile = tile_of(kConfig, kGfx);
  static_assert(kConfig.pairs == dkdv_config(kOp, kGfx, kDType, kHeadDim).pairs,
                "tiles.toml: both loops need the same pairs");
  static constexpr int kPairs = kConfig.pairs, kQueries = kConfig.queries;
  static constexpr bool kPadded = kConfig.padded_tiles;

  using Unit = UnitOf<kGfx, kDType>;
  static constexpr int kColumns = Unit::kColumns;
  // Blocks of a step's columns per pair of waves. Only the loop of dkdv/column_blocks.hpp has several.
  static constexpr bool kByBlocks = kConfig.column_blocks > 0;
  static constexpr int kColumnBlocks = kByBlocks ? kConfig.column_blocks : 1;
  static constexpr int kWaveKeys = kColumnBlocks * Unit::kN;
  static constexpr int kSteps = kQueries / Unit::kM;     // of a tile's rows
  static constexpr int kSumSteps = kHeadDim / Unit::kM;  // of the sums' rows
  using Tiles = TileRange<kQueries>;
  // For one block of columns.
  using Result = typename Unit::C[kSteps];
  using Sums = typename Unit::C[kSumSteps];

  // The loop stores a tile's rows, and its numbers per query, while the previous tile is in use.
  static constexpr bool kPingPong = kConfig.ping_pong;
  static constexpr bool kEarly = kPingPong || kConfig.early_rows;
  // The loop of dkdv/staggered.hpp: one barrier for several tiles.
  static constexpr bool kStaggered = kConfig.staggered && !kFeatured;
  static constexpr int kAtOnce = kStaggered ? kConfig.tiles_at_once : 1;
  static_assert(!kStaggered || kTraits.direct_loads, "tiles.toml: the ISA has no loads straight into LDS");
  // If half of the threads suffice to move tiles, the waves waiting for the matrix unit do it.
  static constexpr bool kHalfMoves = kPingPong && (!kConfig.row_major || kConfig.tight_registers) &&
                                     kQueries / 2 * (kHeadDim / 4) <= kTile.threads / 2;
  static constexpr int kMovers = kHalfMoves ? kTile.threads / 2 : kTile.threads;

  // With `row_major`, tiles are in LDS once, and turned when read. There are two of each.
  static constexpr bool kRowMajor = kConfig.row_major;
  static_assert(!kRowMajor || (kTraits.transposed_reads && kPingPong),
                "tiles.toml: row_major needs ping_pong, and an ISA with reads that transpose");
  using Stage = typename ChoiceOf<
      kStaggered, DirectTensors<Unit, kQueries, kHeadDim, kTile.threads, 2, kAtOnce>,
      Choice<kUneven, UnevenStage<Unit, kQueries, kHeadDim, kValueDim, kMovers, kPadded>,
             Choice<kRowMajor, TurnedTensors<Unit, kQueries, kHeadDim, kMovers, 2>,
                    TransposedStage<Unit, kQueries, kHeadDim, kMovers, kPadded, 2, kConfig.overlaid>>>>::Type;
  using View = BufferView<kQueries, kHeadDim * 2, kTraits.buffer_word3>;
  using OwnView = BufferView<Unit::kN, kHeadDim * 2, kTraits.buffer_word3>;
  using Own = Query<Unit, kHeadDim, kConfig.own_steps, kPadded>;
  using P = Packed<Unit, kQueries, kDType>;
  using Exchange = LaneExchange<Unit, kQueries, kDType>;
  using Scores = ScoresOf<kArch, Unit, kQueries, kTile.block_n, kDType, kPadded>;
  // Whether a wave's operand is in the order of reads.
  static constexpr bool kFragments = kPadded && kColumns == 1 && !Unit::kChainsInRegisters;
  using Operand = PackedOperand<Unit, kQueries, kDType, kPadded, kFragments>;
  using Drop = ColumnDropout<Unit, kQueries>;
  using Floats = __attribute__((address_space(3))) float*;

  // Each wave reads its numbers per query itself.
  static constexpr bool kOwnNumbers = kPingPong && !kFeatured;
  // Whether one wave moves a tile's lse and another its delta, a number per lane.
  static constexpr bool kNumberPerLane = kConfig.early_rows && !kFeatured;
  // A tile's numbers per query: the start values of each role's first product, or lse and delta. In the
  // featured loop both products need them, and there are two sets if they come early.
  static constexpr int kNumbers = kNumberPerLane ? Unit::kWave : kQueries;
  static constexpr int kSetBytes = 2 * kNumbers * sizeof(float);
  static constexpr bool kTwoSets = kEarly && !kNumberPerLane;
  static constexpr int kRowBytes = kOwnNumbers ? 0 : (kTwoSets ? 2 : 1) * kSetBytes;
  static constexpr int kRowsAt = Stage::kBytes;
  static constexpr int kOwnAt = kRowsAt + kRowBytes;
  static constexpr int kOwnBytes = Own::kLdsBytes + Operand::kLdsBytes;  // per wave
  // If both waves of a pair need P, one reads it from the other's operand.
  static constexpr bool kGivesOperand = !kFeatured && kFragments;
  // Otherwise a pair's waves exchange P through this. If operands also pass through LDS, it shares the place
  // of an operand of the wave that reads it and overwrites it afterwards.
  static constexpr bool kExchangeInOperand = Operand::kLdsBytes >= Exchange::kBytes;
  static constexpr int kExchangeAt = kOwnAt + 2 * kPairs * kOwnBytes;
  // If waves of a pair work on different tiles, there are two copies of the data passed between them.
  static constexpr int kCopies = kStaggered ? 2 * kAtOnce : 1;
  static constexpr int kExchangeBytes = kExchangeInOperand ? 0 : kPairs * kColumnBlocks * Exchange::kBytes;
  static constexpr int kScoresAt = kExchangeAt + kCopies * kExchangeBytes;
  static constexpr int kLdsBytes = kScoresAt + (kWithDq ? kCopies * Scores::kBytes : 0);
  static constexpr int kLdsAlignment = kStaggered ? 64 : 16;  // see memory/direct.hpp
  static_assert(kLdsBytes <= kTraits.lds_bytes, "the tiles do not fit into LDS");
  static_assert(Unit::kN == kTraits.step_columns, "tables/isas.toml has another number of columns");
  static_assert(!kPingPong || Unit::kMultipliesFp32, "tiles.toml: ping_pong needs fp32 matrix instructions");
  static_assert(
      !kByBlocks || (kConfig.early_rows && kConfig.prefetch > 0 && Stage::kLoads == 1),
      "tiles.toml: column_blocks needs early_rows, prefetch, and one piece of a tile for a thread at most");
  static_assert(!kByBlocks || (kOwnBytes == 0 && !kExchangeInOperand),
                "tiles.toml: column_blocks needs operands that stay in registers");
  static_assert(kEarly || !kWithDq, "tiles.toml: bwd_fused needs ping_pong or early_rows");
  static_assert(kColumns == 1 || !(kConfig.bit_masks || kConfig.by_element),
                "tiles.toml: bit_masks and by_element need a matrix step with one column a lane");
  static_assert(2 * kQueries <= kTile.threads, "a thread per number");

  const BwdArguments arguments;
  const Sequence sequence;
  const int batch, head_k, thread, lane, wave;
  const Role role;
  const int pair;
  const Visibility visible;
  const LdsBytes lds;
  const float factor;  // scale * log2(e)
  const LateDropout<kMasked> dropout;
  int set = 0;  // of the numbers in use, if early, and of the tiles, if there are two

  FA_DEVICE DkDvBlock(BwdArguments arguments, const BwdParams& params, const Sequence& sequence, LdsBytes lds)
      : arguments(arguments),
        sequence(sequence),
        batch(__builtin_amdgcn_workgroup_id_z()),
        head_k(__builtin_amdgcn_workgroup_id_y()),
        thread(__builtin_amdgcn_workitem_id_x()),
        lane(thread % Unit::kWave),
        wave(uniform(thread / Unit::kWave)),
        role(wave < kPairs ? Role::weights : Role::gradients),
        pair(kMasked && kStaggered ? here_uniform(wave % kPairs) : wave % kPairs),  // one for both roles
        visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right},
        lds(lds),
        factor(uniform(Scoring::factor_of(params))),
        dropout(params) {}

  // The lane that reads tiles, the lane that passes on results, and the thread that moves tiles. If registers
  // are short, their addresses are computed anew for each tile.
  FA_DEVICE int reader() const { return kFeatured ? here(lane) : lane; }
  FA_DEVICE int passer() const { return kConfig.tight_registers ? here(lane) & (Unit::kWave - 1) : lane; }
  // For rare use: with a mask all registers are in use.
  FA_DEVICE int lane_again() const { return kMasked ? own_lane<Unit::kWave>() : here(lane); }
  FA_DEVICE int mover() const {
    if constexpr (kConfig.tight_registers) return moving(wave * Unit::kWave + passer());
    return kFeatured ? moving(here(thread)) : moving(thread);
  }
  // If some threads have nothing to move, they are outside the waves waiting for the matrix unit.
  FA_DEVICE static int moving(int thread) {
    if constexpr (!kTraits.matrix_coexecution) return thread;
    // Masked, so the compiler sees a non-negative number.
    static_assert(kPairs % 2 == 0, "a power of 2");
    return (thread ^ kTile.threads / 2) & (kMovers - 1);
  }

  FA_DEVICE Tiles tiles_of(int first_key, int wave_key) const {
    return {visible.tiles_of_keys(first_key, kTile.block_n, wave_key, kWaveKeys, kQueries)};
  }

  // The tiles with this number, if there are two.
  FA_DEVICE LdsBytes tiles(int set) const {
    if constexpr (kRowMajor) return lds + set * Stage::kTilesBytes;
    return lds;
  }

  FA_DEVICE LdsBytes own_area() const { return lds + kOwnAt + wave * kOwnBytes; }
  FA_DEVICE LdsBytes operand_area() const { return own_area() + Own::kLdsBytes; }
  FA_DEVICE LdsBytes exchange(int columns) const {
    if (kExchangeInOperand) return lds + kOwnAt + (kPairs + pair) * kOwnBytes + Own::kLdsBytes;
    return lds + kExchangeAt + (pair * kColumnBlocks + columns) * Exchange::kBytes;
  }
  FA_DEVICE LdsBytes scores() const { return lds + kScoresAt; }
  FA_DEVICE bool is(Role other) const { return role == other; }

  // Passes P of a block of columns to the other wave of a pair.
  FA_DEVICE void give(const P& packed, int columns = 0) const {
    if constexpr (kGivesOperand) {
      Operand::write(operand_area(), lane, packed);
    } else {
      Exchange::write(exchange(columns), passer(), packed);
    }
  }
  FA_DEVICE P given(int columns = 0) const {
    if constexpr (kGivesOperand) {
      if (!dropout.drops()) return Operand::read(operand_area() - kPairs * kOwnBytes, lane);
    }
    return Exchange::read(exchange(columns), passer());
  }
  // P, already passed on, or dS.
  FA_DEVICE Operand operand(const P& packed) const {
    if constexpr (kGivesOperand) {
      if (!is(Role::weights)) Operand::write(operand_area(), lane, packed);
      wave_barrier();
      return Operand(operand_area(), lane);
    } else {
      return Operand(operand_area(), lane, packed);
    }
  }

  FA_DEVICE Own load_own(int wave_key) const { return load_own(loaded_here(arguments), wave_key); }
  FA_DEVICE Own load_own(const BwdParams& params, int wave_key) const {
    const BwdInput tensor = is(Role::weights) ? params.k : params.v;
    const bool ragged = is_ragged<DkDvBlock>(params.cu_seqlens_k);
    const OwnView view(rows_of(tensor, ragged, batch, head_k, sequence.k_first, sequence.seqlen_k), wave_key);
    const QuerySign sign(is(Role::weights) ? params.scale : 1.0f);
    Unchanged convert;
    return Own(own_area(), view, sign, convert, lane);
  }

  using Source = QuerySource;
  FA_DEVICE Source source(int head_q) const { return source(loaded_here(arguments), head_q); }
  FA_DEVICE Source source(const BwdParams& params, int head_q) const {
    const bool ragged = is_ragged<DkDvBlock>(params.cu_seqlens_q);
    const int64_t lse_at =
        (ragged ? 0 : batch) * params.lse_batch + head_q * params.lse_head + sequence.q_first;
    return {rows_of(params.q, ragged, batch, head_q, sequence.q_first, sequence.seqlen_q),
            rows_of(params.dout, ragged, batch, head_q, sequence.q_first, sequence.seqlen_q),
            params.lse + lse_at, params.delta + lse_at};
  }

  // Whether a thread has a number of the tile.
  FA_DEVICE bool has_number() const {
    static_assert(2 * kQueries % Unit::kWave == 0, "all threads of a wave, or none");
    return (kConfig.early_rows ? uniform(thread) : thread) < 2 * kQueries;
  }

  // A thread's number of the tile: see kRowBytes.
  FA_DEVICE float load_number(const Source& from, int first, float last = 0) const {
    if constexpr (kNumberPerLane) {
      static_assert(kQueries <= kNumbers, "a number per lane");
      if (wave > 1) return last;  // in the same register: another one would wait for the load into it
      const float* const numbers = wave == 0 ? from.lse : from.delta;
      const HeadRows rows{reinterpret_cast<const char*>(numbers), sizeof(float), sequence.seqlen_q};
      return BufferView<kNumbers, sizeof(float), kTraits.buffer_word3>(rows, first)
          .template read<float>(lane, 0);
    }
    const int row = first + thread % kQueries;
    if (!has_number() || row >= sequence.seqlen_q) return 0;
    return (thread < kQueries ? from.lse : from.delta)[row];
  }

  FA_DEVICE static float shift(float lse) {
    return Scoring::shift<kDType>(kMasked ? Scoring::masked_lse(lse) : lse);
  }

  FA_DEVICE void store_number(float value, int set = 0) const {
    if constexpr (kNumberPerLane) {
      if (wave > 1) return;
      value = wave == 0 ? shift(value) * -__builtin_amdgcn_rcpf(factor) : dropout.minus_delta(value);
      ((Floats)(lds + kRowsAt))[thread] = value;
      return;
    }
    if (!has_number()) return;
    if (thread < kQueries) {
      value = shift(value);
      if (!kFeatured) value *= -__builtin_amdgcn_rcpf(factor);
    } else if (!kFeatured) {
      value = dropout.minus_delta(value);
    }
    ((Floats)(lds + kRowsAt + set * kSetBytes))[thread] = value;
  }

  // The numbers of the tile's rows needed by the wave, and the number of the lane's row `f`.
  FA_DEVICE Floats numbers() const {
    const int at = kRowsAt + (kTwoSets ? set * kSetBytes : 0);
    return (Floats)(lds + at) + (is(Role::weights) ? 0 : kNumbers);
  }
  FA_DEVICE float number(int f) const {
    return numbers()[Unit::held_begin(lane, kQueries) + Unit::held_step(f)];
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
