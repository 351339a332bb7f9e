// The work of one workgroup of the forward kernel: types and constants derived from its config, its place in
// the grid, and the keys seen by its rows.
//
// With Rows::packed (decode: split-KV with PackGQA), a workgroup has one step's rows of a head of k and v,
// and a part of the keys. Its waves compute the same scores and own parts of head_dim, or have own keys.
#pragma once

#include "device/arch/device.hpp"
#include "device/call/arguments.hpp"
#include "device/call/config.hpp"
#include "device/call/order.hpp"
#include "device/call/params.hpp"
#include "device/call/sequence.hpp"
#include "device/forward/parts/converts.hpp"
#include "device/forward/parts/heads.hpp"
#include "device/masks/mask.hpp"
#include "device/masks/masked_score.hpp"
#include "device/memory/codes/bytes.hpp"
#include "device/memory/codes/direct_bytes.hpp"
#include "device/memory/codes/own_elements.hpp"
#include "device/memory/direct.hpp"
#include "device/memory/prefetch.hpp"
#include "device/memory/query.hpp"
#include "device/memory/stage.hpp"
#include "device/memory/turned.hpp"
#include "device/memory/view.hpp"
#include "device/mma/units.hpp"
#include "device/scores/dropout.hpp"
#include "device/scores/probabilities.hpp"
#include "device/scores/softmax_of.hpp"

namespace fa {

// kWithFeatures: softcap, ALiBi, pages and dropout. Their code would take registers from the plain loop.
// Decode lacks dropout. kMasksOf: the kernel has a mask or bias (masked.hpp), and none of these features in
// either loop.
// kWithDropout: a loop with a mask has dropout.
template <Gfx kGfx, DType kElement, int kDim, bool kWithFeatures, Op kOp, Masks kMasksOf = Masks::none,
          bool kWithDropout = kMasksOf != Masks::none>
struct Block {
  static constexpr DType kDType = kElement;
  static constexpr int kHeadDim = kDim, kKeyDim = kDim;
  static constexpr Masks kMasks = kMasksOf;
  static constexpr bool kMasked = kMasks != Masks::none;
  static constexpr bool kFeatured = kWithFeatures && !kMasked;
  static constexpr ArchTraits kTraits = traits(kGfx);
  // For a mask's step, if products start from the softmax's shift.
  static constexpr bool kUnscaledScores = !kTraits.matrix_coexecution, kGuardsBias = true, kMaskAhead = false;
  static constexpr Rows kRows = rows_of(kOp);
  static constexpr bool kPacked = kRows == Rows::packed;
  static constexpr bool kDrops = kFeatured && !kPacked;
  static constexpr bool kDropsLate = kWithDropout, kHasSinks = true;
  static constexpr bool kWide = kRows == Rows::shared_queries;
  static constexpr bool kUneven = kRows == Rows::uneven_queries;
  // K and V in memory are codes of 8 bits. kWholeCodes: unpacked without subnormals, which a step may lose.
  static constexpr bool kCoded = kOp == Op::decode_8bit;
  static constexpr bool kWholeCodes = kTraits.flushes_denormals || !kTraits.matrix_instructions();
  static constexpr int kElementBytes = kCoded ? 1 : 2;  // of K and V in memory
  // Q, K and V are codes of 8 bits in products, too. Rows of Q and K have half as many elements of 16 bits.
  static constexpr bool kFp8 = kOp == Op::fwd_fp8 || kOp == Op::fwd_int8;
  // Q and K are int8, with scales of their own (forward/int8_scores.hpp). Without products of fp8, V has
  // elements of 16 bits.
  static constexpr bool kCounts = kOp == Op::fwd_int8;
  static constexpr bool kFp8Values = kFp8 && !(kCounts && kTraits.fp8 == Fp8::none);
  static_assert(!kUneven || kHeadDim == kUnevenHeadDim, "table.toml: fwd_uneven has one head dim");
  static constexpr int kValueDim = kUneven ? kUnevenValueDim : kHeadDim;  // of v and out
  static constexpr FwdConfig kConfig = forward_config(kOp, kGfx, kDType, kHeadDim, kWithFeatures);
  FA_REQUIRE_ROW(kOp, kConfig.waves > 0);
  static constexpr FwdTile kTile = forward_tile(kOp, kGfx, kDType, kHeadDim);
  static constexpr int kKeys = kConfig.keys, kSlices = kConfig.slices;  // slices of head_dim, one per wave
  static constexpr int kRowBytes = kHeadDim * (kFp8 ? 1 : 2), kValueBytes = kValueDim * 2;  // of Q, of out
  static constexpr int kKeyRow = kRowBytes / 2 * kElementBytes;
  static constexpr int kValueRow = kFp8Values ? kValueDim : kValueDim * kElementBytes;  // of V in memory

  // The unit multiplies fp16 only, and bf16 is narrowed to it. If this is inexact for any loaded value, the
  // featured loop recomputes the rows in fp32.
  static constexpr bool kNarrow = !kWithFeatures && !kCoded && kDType == DType::bf16 &&
                                  !kTraits.bf16_products && !kWide && (!kPacked || kHeadDim <= 128);
  // Undoes the scaling of narrowed values in V, and in the products of Q and K.
  static constexpr float kOutUnit = kNarrow ? 1.0f / (1 << kNarrowScale) : 1,
                         kScoreUnit = kOutUnit * kOutUnit;

  static constexpr bool kPadded = kConfig.padded_tiles;
  static constexpr bool kOwnKeys = kConfig.schedule == Schedule::own_keys, kInPlace = kOwnKeys;
  using Unit = typename UnitFor<kGfx, kNarrow || kCoded ? DType::fp16 : kDType, kFp8Values,
                                kConfig.narrow_steps, kOwnKeys>::Type;
  static_assert(kHeadDim % Unit::kM == 0, "head dims are whole matrix steps");
  using Descales = KeyDescales<Unit, kKeys>;
  using Wide = typename ConvertOf<kNarrow, kCoded, kWholeCodes, Descales>::Type;
  using Convert = Choice<!kFp8Values, Wide, Choice<kCounts, Unchanged, CodesOf<kTraits.fp8>>>;
  // Codes leave their registers early, for the next ones. Beside AccVGPRs, ordinary registers are too few.
  static constexpr bool kEarlyLoads =
      kCoded && kOwnKeys && kConfig.narrow_steps && kHeadDim <= 64 && !kTraits.separate_acc_vgprs;
  static constexpr bool kEarlyQuery = kEarlyLoads && (kTraits.matrix_instructions() || kLone<Unit>);
  static constexpr bool kSlots = kConfig.schedule == Schedule::direct_slots;
  static constexpr bool kDirect = kConfig.schedule == Schedule::direct || kSlots;
  static constexpr bool kEager = kConfig.schedule == Schedule::eager;
  static constexpr int kMovers = kTile.threads / (kEager ? 2 : 1);  // of K, and of V
  static constexpr bool kTwoTiles =
      kConfig.schedule == Schedule::two_tiles || kConfig.schedule == Schedule::two_tiles_in_turn;
  static_assert(!(kTwoTiles || kDirect) || kTraits.transposed_reads,
                "tiles.toml: the ISA has no reads that transpose");
  static_assert(!kDirect || kTraits.direct_loads, "tiles.toml: the ISA has no loads straight into LDS");
  template <int kWidth, bool kSpread>
  using DirectOf = Choice<kFp8, DirectByteStage<Unit, kKeys, kWidth, kTile.threads>,
                          DirectStage<Unit, kKeys, kWidth, kTile.threads, kSpread>>;
  template <int kWidth, bool kSpread, class Staged>
  using StageOf = Choice<kDirect, DirectOf<kWidth, kSpread>,
                         Choice<kTwoTiles, TurnedStage<Unit, kKeys, kWidth, kTile.threads>, Staged>>;
  template <bool kIsValue, class Own, class Staged, class Stage = Choice<kOwnKeys, Own, Staged>>
  using CodedOf = Choice<kCoded, CodedStage<Stage, kIsValue, kWholeCodes, Descales>, Stage>;
  using Keys = CodedOf<false, OwnKeysOf<Unit, kKeys, kHeadDim, kCoded, !kWithFeatures>,
                       StageOf<kHeadDim, true,
                               KeyStage<Unit, kKeys, kRowBytes / 2, kMovers, kPadded,
                                        LdsTile<kKeys, kRowBytes, Unit::kM, kPadded>, kElementBytes>>>;
  using ValueTile = Choice<kWide && Unit::kM == 16, PlacedTile<ShortFragments<kHeadDim, kKeys * 2>>,
                           LdsTile<kValueDim, kKeys * 2, Unit::kM, kPadded>>;
  using StagedValues =
      Choice<kFp8Values, ByteValueStage<Unit, kKeys, kValueDim, kMovers, kPadded, kConfig.value_lanes>,
             ValueStage<Unit, kKeys, kValueDim, kTile.threads, kPadded, kConfig.value_lanes,
                        kConfig.half_stores, ValueTile, kElementBytes>>;
  using Values = CodedOf<true, OwnValuesOf<Unit, kKeys, kHeadDim, kCoded, !kWithFeatures>,
                         StageOf<kValueDim, false, StagedValues>>;
  using Q = Query<Unit, kRowBytes / kOperandBytes<Unit> / kSlices, kConfig.query_steps, kPadded>;
  using P = Probabilities<Unit, kKeys, kDType, kPadded, kConfig.schedule == Schedule::pipelined>;
  using Drop = Dropout<Unit, kPacked ? larger(kKeys, 2 * Unit::kM) : kKeys>;  // decode lacks it
  template <int kRowsOf, int kBytes>
  using View = BufferView<kRowsOf, kBytes, kTraits.buffer_word3, kConfig.short_prologue>;
  template <class Stage>
  using TileView = View<kKeys, kSame<Stage, Keys> ? kKeyRow : kValueRow>;
  using QueryView = View<Unit::kN, kRowBytes>;
  using OutView = View<Unit::kN, kValueBytes>;
  using LseView = BufferView<Unit::kN, sizeof(float), kTraits.buffer_word3>;
  using DescaleView = BufferView<kKeys, sizeof(float), kTraits.buffer_word3>;

  static constexpr int kScoreSteps = kKeys / Unit::kM;
  static constexpr int kStoredSteps = kValueDim / ValuesOf<Unit>::kM / (kPacked ? kConfig.waves : kSlices);
  static constexpr int kOutSteps = kOwnKeys ? kValueDim / ValuesOf<Unit>::kM : kStoredSteps;  // computed
  static_assert(!kPacked || kStoredSteps * ValuesOf<Unit>::kM * kConfig.waves == kHeadDim, "whole steps");
  static_assert(!kPacked || !kConfig.buffer_stores, "packed rows are too far apart for 32-bit offsets");
  using Softmax = typename SoftmaxOf<Unit, kScoreSteps, !kFeatured && !kWide && !kCoded, kConfig, kMasked,
                                     !kTraits.matrix_coexecution, kCounts>::Type;
  using Operands = Prefetch<typename Unit::A, kConfig.prefetch, together(Unit::kColumns, kConfig)>;
  using Scores = typename Unit::C[kScoreSteps];
  using Out = typename Unit::C[kOutSteps];
  using Stored = typename Unit::C[kStoredSteps];
  using StoredRows =
      Choice<kOwnKeys, OwnRows<ValuesOf<Unit>, kOutSteps>, Choice<kFp8 && kDirect, OrderedRows<Unit>, Unit>>;
  // A wave has priority until its first loads are in flight. With fewer waves per SIMD this gains nothing.
  static constexpr bool kHastens = kConfig.short_prologue && kConfig.waves_per_simd > 3;
  // Priorities of waves that multiply. Waves in the softmax have 0.
  static constexpr int kScorePriority = kConfig.out_first ? 1 : 2, kOutPriority = 3 - kScorePriority;
  // Where the compiler waits for loads before a barrier, loads come after it.
  static constexpr bool kLoadsAfterBarrier = !kTraits.back_off_barrier;
  static constexpr bool kShortOfRegisters =
      kWithFeatures || (kMasked && kTraits.matrix_coexecution && kHeadDim > 64);
  static constexpr bool kMaskLoops = kConfig.mask_loops, kLateMask = kConfig.late_mask;
  // Dropout in the loop of masks costs calls without it registers.
  static constexpr bool kDropoutLoops = kMasked && kTraits.separate_acc_vgprs && kHeadDim == 64;
  static_assert(!kDropoutLoops || kTraits.matrix_coexecution, "FoldedSoftmax has dropout in any loop");
  static constexpr Hiding kHiding = kMaskLoops || kDirect ? Hiding::by_opaque_bits
                                    : kShortOfRegisters   ? Hiding::by_select
                                                          : Hiding::by_bits;
  // Unrolled, the loads of head dims 96 and 192 exceed the registers.
  static constexpr bool kUnrolls = kTraits.matrix_instructions() || (kHeadDim & (kHeadDim - 1)) == 0;

  // LDS: K tile, V tile, packed Q (shared by all waves), then each wave's own Q and P.
  static constexpr int kWaveQueryLds = kPacked ? 0 : Q::kLdsBytes;
  static constexpr int kWaveLds = kWaveQueryLds + P::kLdsBytes;
  static constexpr int kTilesLds = Keys::Tile::kBytes + Values::Tile::kBytes;
  static constexpr bool kInTurn = kConfig.schedule == Schedule::slots_in_turn;
  static constexpr int kKeysAtOnce = kInTurn || kSlots ? 3 : kTwoTiles || kDirect || kEager ? 2 : 1;
  static constexpr int kValuesAtOnce = kSlots ? 2 : kKeysAtOnce;
  static constexpr int kLdsBytes = kKeysAtOnce * Keys::Tile::kBytes + kValuesAtOnce * Values::Tile::kBytes +
                                   Q::kLdsBytes - kWaveQueryLds + kConfig.waves * kWaveLds +
                                   (kOwnKeys ? join_bytes<Unit>(kHeadDim, kConfig.waves) : 0);
  static constexpr int kLdsAlignment = kDirect ? 64 : 16;  // for addresses with a flipped bit
  static_assert(kTilesLds % kLdsAlignment == 0, "each of two tiles is aligned");
  static_assert(kTile.threads == kConfig.waves * kTraits.wave, "tiles.toml: both loops need the same waves");
  static_assert(kConfig.narrow_steps || Unit::kN == kTraits.step_columns,
                "tables/isas.toml has another number of columns");
  static_assert(kLdsBytes <= kTraits.lds_bytes, "the tiles do not fit into LDS");

  // Keys [begin, end) of the block's tiles, those seen by the wave, and those seen by all its rows.
  struct Tiles : TileBounds {
    // As the sign of a number: two comparisons take five more scalar instructions.
    FA_DEVICE int seen_sign(int first) const { return (first - wave_end) & (wave_begin - kKeys - first); }
    FA_DEVICE bool seen(int first) const {
      if (kConfig.short_prologue) return seen_sign(first) < 0;
      return first < wave_end && first + kKeys > wave_begin;
    }
    // Negative if a key of the tile is hidden from one of the wave's rows.
    FA_DEVICE int hidden(int first) const {
      return (first - unmasked_begin) | (unmasked_end - kKeys - first);
    }
  };

  const FwdParams& params;
  const Sequence sequence;
  const int place;                            // block in x
  const int batch, head, thread, lane, wave;  // head: of k and v with packed rows
  const int group;                            // packed heads of q
  const Visibility visible;
  const LdsBytes k_tile, v_tile, wave_lds;

  FA_DEVICE Block(const FwdParams& params, const Sequence& sequence, const WorkgroupPlace& place,
                  LdsBytes lds)
      : params(params),
        sequence(sequence),
        place(place.block),
        batch(place.batch),
        head(place.head),
        thread(__builtin_amdgcn_workitem_id_x()),
        lane(thread % Unit::kWave),
        wave(uniform(thread / Unit::kWave)),
        group(kPacked ? heads_of_a_head(params) : 1),
        visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right},
        k_tile(lds),
        v_tile(lds + (kSlots ? kKeysAtOnce : 1) * Keys::Tile::kBytes),
        wave_lds(lds + kLdsBytes - (kConfig.waves - wave) * kWaveLds) {}

  FA_DEVICE int first_row() const { return row_block() * kTile.block_m; }

  // The step of the block's rows assigned to the wave. Under a causal mask the last step sees the most keys.
  // With one wave of a workgroup per SIMD, workgroups assign it to different SIMDs.
  FA_DEVICE int step_of_rows() const {
    if constexpr (kConfig.waves != kTraits.simds) return wave;
    const unsigned neighbours = static_cast<unsigned>(place) / 8 + head + batch;
    return static_cast<int>((wave + neighbours) % kConfig.waves);
  }

  FA_DEVICE int rows() const { return sequence.seqlen_q * group; }
  FA_DEVICE int query_of(int row) const {
    return kPacked ? static_cast<int>(static_cast<unsigned>(row) / static_cast<unsigned>(group)) : row;
  }
  FA_DEVICE int head_of(int row) const { return kPacked ? head * group + row - query_of(row) * group : head; }

  // The workgroup's part of the keys. `params` are the arguments, possibly reloaded.
  FA_DEVICE int part(const FwdParams& params) const {
    return params.splits > 1 ? uniform(place / row_blocks(params)) : 0;
  }

  FA_DEVICE Tiles tiles(int block_row, int wave_row) const {
    return kPacked ? tiles_of_part(block_row) : tiles_of_rows(block_row, wave_row);
  }

  // The first of the wave's steps of head_dim.
  FA_DEVICE int first_out_step() const {
    return kPacked ? wave * kStoredSteps : kWide ? slice() * kStoredSteps : 0;
  }

  // The wave's slice of head_dim. Neighbouring waves have the other slices of the same rows.
  FA_DEVICE int slice() const { return wave % kSlices; }

  // The thread moving tiles and the lane reading them. If registers are short, their addresses are computed
  // anew for each tile.
  FA_DEVICE int mover() const {
    if constexpr (!kShortOfRegisters) return thread;
    const int found = here(thread);
    if constexpr (kMaskLoops) __builtin_assume(found >= 0);  // shorter divisions
    return found;
  }
  FA_DEVICE int reader() const { return kWithFeatures ? here(lane) : lane; }

 private:
  // Blocks of rows of the longest sequence. The grid has as many for each part of the keys.
  FA_DEVICE int row_blocks(const FwdParams& params) const {
    return blocks_of_rows(params.seqlen_q * group, kTile.block_m);
  }

  // The last blocks start first: they see the most keys if the window's right side is limited. Except with
  // parts, the order of the launch has it.
  FA_DEVICE int row_block() const {
    if constexpr (kWide) {
      const int blocks = row_blocks(params), own = place - part(params) * blocks;
      return params.window_right < 0 ? own : blocks - 1 - own;
    }
    return kPacked ? uniform(place % row_blocks(params)) : place;
  }

  FA_DEVICE Tiles tiles_of_part(int block_row) const {
    const int past = rows() - block_row < Unit::kN ? rows() : block_row + Unit::kN;
    const int first = uniform(query_of(block_row)), last = uniform(query_of(past - 1));
    const int begin = visible.begin(first), end = visible.end(last);
    const Part tiles = part_of(begin / kKeys, (end + kKeys - 1) / kKeys, part(params), params.splits);
    const int tiles_end = tiles.end * kKeys;
    return {{tiles.begin * kKeys, tiles_end < end ? tiles_end : end, begin, end, visible.begin(last),
             visible.end(first)}};
  }

  FA_DEVICE Tiles tiles_of_rows(int block_row, int wave_row) const {
    if constexpr (kConfig.short_prologue) {
      return {visible.tiles_of_rows_by_branches(block_row, kTile.block_m, wave_row, Unit::kN, kKeys)};
    }
    return {visible.tiles_of_rows(block_row, kTile.block_m, wave_row, Unit::kN, kKeys)};
  }
};

}  // namespace fa
