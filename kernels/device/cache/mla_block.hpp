// The work of one workgroup of the decode of multi-head latent attention: types, constants, its place in the
// grid, and the keys seen by its rows.
#pragma once

#include "device/forward/parts/block.hpp"
#include "device/memory/codes/own_slice.hpp"
#include "device/memory/codes/staged_slice.hpp"
#include "device/memory/slice_stage.hpp"

namespace fa {

// A wave's slice of a tile on its way to products: 16 bits, codes unpacked in registers, the same with scales
// in their rows, or codes unpacked on their way into LDS.
enum class Slices { plain, registers, scaled, staged };
template <Slices, class Unit, int kKeys, int kValues, int kRest, int kSlices, class ValueTile>
struct SliceOf {
  using Type = SliceStage<Unit, kKeys, kValues, kRest, kSlices, ValueTile>;
  static constexpr int kRowsLds = Type::Tile::kBytes, kValuesLds = ValueTile::kBytes;
};
template <class Unit, int kKeys, int kValues, int kRest, int kSlices, class ValueTile>
struct SliceOf<Slices::registers, Unit, kKeys, kValues, kRest, kSlices, ValueTile> {
  using Type = OwnSlice<Unit, kKeys, kValues, kRest, kSlices>;
  static constexpr int kRowsLds = 0, kValuesLds = kSlices * Type::kLdsBytes;
};
template <class Unit, int kKeys, int kValues, int kRest, int kSlices, class ValueTile>
struct SliceOf<Slices::scaled, Unit, kKeys, kValues, kRest, kSlices, ValueTile> {
  using Type = OwnScaledSlice<Unit, kKeys, kValues, kRest, kSlices>;
  static constexpr int kRowsLds = 0, kValuesLds = kSlices * Type::kLdsBytes;
};
template <class Unit, int kKeys, int kValues, int kRest, int kSlices, class ValueTile>
struct SliceOf<Slices::staged, Unit, kKeys, kValues, kRest, kSlices, ValueTile> {
  using Type = StagedSlice<Unit, kKeys, kValues, kRest, kSlices>;
  static constexpr int kRowsLds = Type::Tile::kBytes, kValuesLds = 0;
};

// A lane's elements of O^T over codes: those of kWidth steps as in OwnRows, then those of the next steps, kM
// * kWidth elements of head_dim further.
template <class Unit, int kWidth>
struct OwnRowsInParts : OwnRows<Unit, kWidth> {
  static constexpr int held_step(int f) {
    constexpr int kHeld = Unit::kRows * kWidth;
    return f / kHeld * Unit::kM * kWidth + OwnRows<Unit, kWidth>::held_step(f % kHeld);
  }
};

// Uses the names of Block, because Block's functions also accept this type.
template <Gfx kGfx, DType kElement, int kDim, Op kOp>
struct MlaBlock {
  static constexpr DType kDType = kElement;
  static constexpr int kKeyDim = kDim, kValueDim = mla_value_dim(kDim), kHeadDim = kValueDim;
  static constexpr ArchTraits kTraits = traits(kGfx);
  static constexpr bool kPacked = true, kWide = false, kMasked = false, kDrops = false, kDropsLate = false,
                        kCounts = false;
  static constexpr bool kHasSinks = false;
  static constexpr bool kFeatured = true;  // pages only
  // As in Block.
  static constexpr bool kScaled = kOp == Op::mla_rows;  // rows hold their scales
  static constexpr bool kCoded = kOp == Op::mla_8bit || kScaled, kEarlyLoads = false;
  static constexpr bool kWholeCodes = kTraits.flushes_denormals || !kTraits.matrix_instructions();
  static constexpr int kElementBytes = kCoded ? 1 : 2;
  static constexpr Gfx kArch = kGfx;
  static constexpr float kCodeUnit = kWholeCodes ? 1 : 256;  // the value of 1 as an unpacked code of e4m3fn
  static constexpr int kRowBytes = kScaled ? kScaledRowBytes : kKeyDim * kElementBytes;
  static constexpr FwdConfig kConfig = forward_config(kOp, kGfx, kDType, kKeyDim);
  FA_REQUIRE_ROW(kOp, kConfig.waves > 0);
  // Over codes: the next ones take the registers of this tile's.
  static constexpr bool kLateLoads = kConfig.schedule == Schedule::one_stage;
  static_assert(kLateLoads ? kCoded : kConfig.schedule == Schedule::two_stages, "tiles.toml: see schedule");
  static constexpr int kKeys = kConfig.keys, kSlices = kConfig.waves;
  static constexpr float kOutUnit = 1;

  using Unit = UnitOf<kGfx, kCoded ? DType::fp16 : kDType>;
  static constexpr int kSliceValues = kHeadDim / kSlices, kSliceKeys = kKeyDim / kSlices;
  struct Values {
    using Tile = PlacedTile<Choice<Unit::kM == 16, ShortFragments<kHeadDim, kKeys * 2>,
                                   Swizzle<kHeadDim, kKeys * 2, Unit::kM, true>>>;
  };
  static constexpr int kBlocks = larger(kConfig.column_blocks, 1);  // per step's rows
  static constexpr int kSliceRest = kSliceKeys - kSliceValues;
  // Only if lanes have different parts of K in their operands, each is unpacked once in registers.
  static constexpr Slices kSlicing = !kCoded                                     ? Slices::plain
                                     : kScaled                                   ? Slices::scaled
                                     : Unit::kRun * 2 == Unit::kK && kKeys == 32 ? Slices::registers
                                                                                 : Slices::staged;
  static constexpr bool kInRegisters = kSlicing == Slices::registers || kScaled;
  using Slice = SliceOf<kSlicing, Unit, kKeys, kSliceValues, kSliceRest, kSlices, typename Values::Tile>;
  using Keys = typename Slice::Type;
  using Descales = KeyDescales<Unit, kKeys>;
  using Q = Query<Unit, kSliceKeys, kConfig.query_steps, true>;
  using P = Probabilities<Unit, kKeys, kDType, true, false>;
  using TileView = BufferView<kKeys, kRowBytes, kTraits.buffer_word3>;
  using DescaleView = BufferView<kKeys, sizeof(float), kTraits.buffer_word3>;
  static constexpr bool kTwoTiles = false, kUnrolls = true;
  static constexpr int kScorePriority = 0, kOutPriority = 0;

  static constexpr int kScoreSteps = kKeys / Unit::kM;
  static constexpr int kOutSteps = kSliceValues / Unit::kM;
  static_assert(kOutSteps * Unit::kM * kSlices == kHeadDim, "a wave has whole steps");
  // With a folded softmax, a block of rows has at most as many queries as a tile has keys.
  static_assert(kTraits.matrix_coexecution || Unit::kN <= kKeys, "see FoldedSoftmax");
  using Softmax = Choice<kTraits.matrix_coexecution,
                         typename SoftmaxOf<Unit, kScoreSteps, false, kConfig, false, false>::Type,
                         FoldedSoftmax<Unit, kScoreSteps, false, kConfig.dual_issue, false, true>>;
  using Operands = Prefetch<typename Unit::A, kConfig.prefetch>;
  using Scores = typename Unit::C[kScoreSteps];
  using Out = typename Unit::C[kOutSteps];
  // What is stored is what a wave computes.
  static constexpr bool kOwnKeys = false, kInPlace = true;
  static constexpr int kStoredSteps = kOutSteps;
  using Stored = Out;
  // Over codes, of elements of V that a lane reads at once.
  static constexpr int kNeighbours = 4;
  using StoredRows = Choice<kCoded, OwnRowsInParts<Unit, kNeighbours>, Unit>;
  using Convert = typename ConvertOf<false, kCoded, kWholeCodes, Descales>::Type;

  // LDS: each wave's rows of K, V^T, the parts of scores of two tiles (so a tile needs one barrier), and each
  // wave's Q and P. If this is too much, a wave has one place for its rows of K, then its parts of scores,
  // then its rows of V^T.
  static constexpr int kWaveValuesLds = Slice::kValuesLds / kSlices;
  static constexpr int kWaveQueryLds = Q::kLdsBytes;
  static constexpr int kWaveLds = kWaveQueryLds + P::kLdsBytes;
  static constexpr int kPartBytes = sizeof(Scores) * Unit::kWave;  // per wave and block
  static constexpr int kPartsLds = kSlices * kBlocks * kPartBytes;
  static constexpr int kApartLds = kSlices * Slice::kRowsLds + Slice::kValuesLds;
  static constexpr bool kOverlaid =
      kInRegisters || kApartLds + 2 * kPartsLds + kSlices * kWaveLds > kTraits.lds_bytes;
  static constexpr int kKeyLds = kOverlaid ? kWaveValuesLds : Slice::kRowsLds;  // per wave
  static constexpr int kTilesLds = kOverlaid ? kSlices * kKeyLds : kApartLds;
  static constexpr int kLdsBytes = kTilesLds + (kOverlaid ? 0 : 2 * kPartsLds) + kSlices * kWaveLds;
  static_assert(larger(Slice::kRowsLds, kBlocks* kPartBytes) <= kWaveValuesLds || !kOverlaid,
                "what comes before V^T has room in its place");
  static_assert(kLdsBytes <= kTraits.lds_bytes, "the tiles do not fit into LDS");
  static_assert(Unit::kN == kTraits.step_columns, "tables/isas.toml has another number of columns");

  struct Tiles : TileBounds {
    // Negative if a key of the tile is hidden from one of the rows.
    FA_DEVICE int hidden(int first) const { return unmasked_end - kKeys - first; }
  };

  const FwdParams& params;
  const Sequence sequence;
  const int place, batch, thread, lane, wave;  // place: in x
  const int group;                             // heads
  const Visibility visible;
  const LdsBytes k_tile, v_tile, wave_lds;
  static constexpr int head = 0;  // of K

  FA_DEVICE MlaBlock(const FwdParams& params, const Sequence& sequence, LdsBytes lds)
      : params(params),
        sequence(sequence),
        place(__builtin_amdgcn_workgroup_id_x()),
        batch(__builtin_amdgcn_workgroup_id_z()),
        thread(__builtin_amdgcn_workitem_id_x()),
        lane(thread % Unit::kWave),
        wave(uniform(thread / Unit::kWave)),
        group(params.nheads),
        visible{sequence.seqlen_q, sequence.seqlen_k, kNoWindow, params.window_right},
        k_tile(lds + wave * kKeyLds),
        v_tile(lds + (kOverlaid ? 0 : kSlices * Slice::kRowsLds)),
        wave_lds(lds + kLdsBytes - (kSlices - wave) * kWaveLds) {}

  FA_DEVICE int slice() const { return wave; }
  // Where a byte of the wave's slice of Q is in the row. Over codes, pairs of runs are neighbours
  // (memory/codes/own_slice.hpp).
  FA_DEVICE int query_byte(int byte) const {
    constexpr int kValueBytes = kSliceValues * 2;
    const int place = kInRegisters ? (byte & ~48) | (byte & 16) << 1 | (byte & 32) >> 1 : byte;
    return byte < kValueBytes ? slice() * kValueBytes + place
                              : (kHeadDim + slice() * kSliceRest) * 2 + byte - kValueBytes;
  }
  FA_DEVICE int first_out_step() const { return wave * kOutSteps; }
  FA_DEVICE int reader() const { return lane; }
  // The first wave's part. Those of other waves are kPartsApart bytes further each.
  static constexpr int kPartsApart = kOverlaid ? kKeyLds : kBlocks * kPartBytes;
  FA_DEVICE LdsBytes parts() const { return kOverlaid ? v_tile : v_tile + Slice::kValuesLds; }
  FA_DEVICE LdsBytes own_values() const { return v_tile + wave * kWaveValuesLds; }

  FA_DEVICE int rows() const { return sequence.seqlen_q * group; }
  FA_DEVICE int first_row() const { return uniform(place % row_blocks(params)) * (kBlocks * Unit::kN); }
  FA_DEVICE int query_of(int row) const {
    return static_cast<int>(static_cast<unsigned>(row) / static_cast<unsigned>(group));
  }
  FA_DEVICE int head_of(int row) const { return row - query_of(row) * group; }
  FA_DEVICE int part(const FwdParams& params) const {
    return params.splits > 1 ? uniform(place / row_blocks(params)) : 0;
  }

  // The workgroup's part of the keys, as seen by `size` rows from block_row on.
  FA_DEVICE Tiles tiles(int block_row, int size) const {
    const int past = rows() - block_row < size ? rows() : block_row + size;
    const int first = uniform(query_of(block_row)), last = uniform(query_of(past - 1));
    const int end = visible.end(last);
    const Part tiles = part_of(0, (end + kKeys - 1) / kKeys, part(params), params.splits);
    const int tiles_end = tiles.end * kKeys;
    return {{tiles.begin * kKeys, tiles_end < end ? tiles_end : end, 0, end, 0, visible.end(first)}};
  }

 private:
  FA_DEVICE int row_blocks(const FwdParams& params) const {
    return blocks_of_rows(params.seqlen_q * group, kBlocks * Unit::kN);
  }
};

}  // namespace fa
