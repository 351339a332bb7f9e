// Shared by the kernels of dk and dv: the types and constants that follow from a row of tiles.toml. A block
// is made in layers, each derived from the one before:
//
//   DkDvShape   this file
//   its loop    what it stores in LDS and how: basic.hpp, column_blocks.hpp, ping_pong.hpp, staggered.hpp
//   a kernel    what it does differently: ../separate.hpp, masked.hpp, fused.hpp, dkdv_uneven.hpp
//   DkDvBlock   a workgroup's inputs and its places in LDS: block.hpp
#pragma once

#include "device/backward/parts/block.hpp"
#include "device/backward/parts/late_dropout.hpp"
#include "device/scores/dropout_columns.hpp"
#include "device/scores/score_tile.hpp"

namespace fa {

template <Op kOp, Gfx kGfx, DType kElement, int kDim, bool kWithFeatures = false>
struct DkDvShape {
  static constexpr Gfx kArch = kGfx;
  static constexpr DType kDType = kElement;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kFeatured = kWithFeatures;
  static constexpr ArchTraits kTraits = traits(kGfx);
  static constexpr DkDvConfig kConfig = dkdv_config(kOp, kGfx, kDType, kHeadDim, kFeatured);
  FA_REQUIRE_ROW(kOp, kConfig.pairs > 0);
  static constexpr DkDvTile kTile = tile_of(kConfig, kGfx);
  static_assert(kConfig.pairs == dkdv_config(kOp, kGfx, kDType, kHeadDim).pairs,
                "tiles.toml: both loops need the same pairs");
  static constexpr int kPairs = kConfig.pairs, kQueries = kConfig.queries;

  using Unit = UnitOf<kGfx, kDType>;
  static constexpr int kColumns = Unit::kColumns;
  static constexpr int kSteps = kQueries / Unit::kM;     // of a tile's rows
  static constexpr int kSumSteps = kHeadDim / Unit::kM;  // of the sums' rows
  using Tiles = TileRange<kQueries>;
  // For one block of columns.
  using Result = typename Unit::C[kSteps];
  using Sums = typename Unit::C[kSumSteps];

  using View = BufferView<kQueries, kHeadDim * 2, kTraits.buffer_word3>;
  using OwnView = BufferView<Unit::kN, kHeadDim * 2, kTraits.buffer_word3>;
  using Own = Query<Unit, kHeadDim, kConfig.own_steps, kConfig.padded_tiles>;
  using P = Packed<Unit, kQueries, kDType>;
  using Exchange = LaneExchange<Unit, kQueries, kDType>;
  using Scores = ScoresOf<kArch, Unit, kQueries, kTile.block_n, kDType, kConfig.padded_tiles>;
  // Whether a wave's operand is in the order of reads.
  static constexpr bool kFragments = kConfig.padded_tiles && kColumns == 1 && !Unit::kChainsInRegisters;
  using Operand = PackedOperand<Unit, kQueries, kDType, kConfig.padded_tiles, kFragments>;
  using Drop = ColumnDropout<Unit, kQueries>;
  using Source = QuerySource;
  using Floats = __attribute__((address_space(3))) float*;

  static_assert(!kConfig.row_major || (kTraits.transposed_reads && kConfig.ping_pong),
                "tiles.toml: row_major needs ping_pong, and an ISA with reads that transpose");
  static_assert(!kConfig.ping_pong || Unit::kMultipliesFp32,
                "tiles.toml: ping_pong needs fp32 matrix instructions");
  static_assert(kColumns == 1 || !(kConfig.bit_masks || kConfig.by_element),
                "tiles.toml: bit_masks and by_element need a matrix step with one column a lane");
  static_assert(Unit::kN == kTraits.step_columns, "tables/isas.toml has another number of columns");
  static_assert(2 * kQueries <= kTile.threads, "a thread per number");

  // A kernel may replace these.
  static constexpr int kValueDim = kHeadDim;  // of v and dout
  static constexpr bool kMasked = false;      // there is a mask or bias (dkdv/key_mask.hpp)
  static constexpr bool kWithDq = false;      // dq is computed, too (dkdv/dq_part.hpp)

  // A loop may replace these. It adds Stage, which moves tiles into LDS, and Numbers (dkdv/numbers.hpp).
  static constexpr int kColumnBlocks = 1;        // blocks of a step's columns per pair of waves
  static constexpr int kMovers = kTile.threads;  // threads that move tiles
  static constexpr int kCopies = 1;              // of the data passed between the waves of a pair
  static constexpr int kLdsAlignment = 16;
  // Whether arguments are loaded with one wait: those that choose the loop, those of the kernel's end, and
  // all (run takes them).
  static constexpr bool kAsksAtOnce = false, kEndsAtOnce = false, kTakesParams = false;
  static constexpr bool kShortOfScalars = kKeepsRareValues;  // all scalar registers are in use
  // For each product of P and dP.
  FA_DEVICE static float product(float x) { return x; }
};

}  // namespace fa
