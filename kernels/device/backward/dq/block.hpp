// The work of one workgroup of the dq kernel: its inputs, and the processing of products. See
// backward/dq/loop.hpp.
#pragma once

#include "device/backward/dq/both.hpp"
#include "device/backward/dq/features.hpp"
#include "device/backward/parts/block.hpp"
#include "device/memory/direct.hpp"
#include "device/memory/turned.hpp"

namespace fa {

// kOfValues: the head dim of v and dout. kWithMask: for the kernel with a mask or bias
// (backward/dq/features.hpp).
template <Gfx kGfx, DType kElement, int kDim, Op kOp, bool kWithFeatures, int kOfValues = kDim,
          bool kWithMask = false>
struct DqBlock {
  static constexpr Gfx kArch = kGfx;
  static constexpr DType kDType = kElement;
  static constexpr int kHeadDim = kDim, kValueDim = kOfValues;
  static constexpr bool kUneven = kValueDim != kHeadDim;
  static constexpr bool kFeatured = kWithFeatures, kMasked = kWithMask;
  static constexpr ArchTraits kTraits = traits(kGfx);
  static constexpr DqConfig kConfig = dq_config(kOp, kGfx, kDType, kHeadDim, kFeatured);
  FA_REQUIRE_ROW(kOp, kConfig.waves > 0);
  static constexpr FwdTile kTile = tile_of(kConfig, kGfx);
  static constexpr int kKeys = kConfig.keys;
  static constexpr bool kPadded = kConfig.padded_tiles;

  using Unit = UnitOf<kGfx, kDType>;
  static constexpr int kAhead = kConfig.prefetch;
  static constexpr int kColumns = Unit::kColumns;
  static constexpr int kSteps = kKeys / Unit::kM;        // of a tile's keys
  static constexpr int kSumSteps = kHeadDim / Unit::kM;  // of the sums' rows
  using Tiles = TileRange<kKeys>;
  using Result = typename Unit::C[kSteps];
  using Sums = typename Unit::C[kSumSteps];

  // With `row_major`, K is in LDS once, and turned when read.
  static constexpr bool kRowMajor = kConfig.row_major;
  static_assert(!kRowMajor || kTraits.transposed_reads, "tiles.toml: the ISA has no reads that transpose");
  static constexpr bool kDirect = kConfig.direct;
  static_assert(!kDirect || (kRowMajor && kTraits.direct_loads), "tiles.toml: direct needs both");
  using Turned = Choice<kDirect, DirectTiles<Unit, kKeys, kHeadDim, kTile.threads>,
                        TurnedStage<Unit, kKeys, kHeadDim, kTile.threads>>;
  using Keys = Choice<kRowMajor, Turned,
                      TransposedStage<Unit, kKeys, kHeadDim, kTile.threads, kPadded, 1, false, kUneven>>;
  using Values = Choice<kRowMajor, Turned, KeyStage<Unit, kKeys, kValueDim, kTile.threads, kPadded>>;
  using View = BufferView<kKeys, kHeadDim * 2, kTraits.buffer_word3>;
  using ValueView = BufferView<kKeys, kValueDim * 2, kTraits.buffer_word3>;
  using NumberView = BufferView<Unit::kN, sizeof(float), kTraits.buffer_word3>;
  static constexpr bool kPaddedOwn = kPadded && Unit::kM != 32;
  // Whether data private to a wave is in the order of reads. Above head dim 128 this takes registers.
  static constexpr bool kFragments = kPaddedOwn && Unit::kColumns == 1 && kHeadDim <= 128;
  using Q = Query<Unit, kHeadDim, kConfig.q_steps, kPaddedOwn, kFragments>;
  using Dout = Query<Unit, kValueDim, kConfig.dout_steps, kPaddedOwn, kFragments>;
  using P = Packed<Unit, kKeys, kDType>;
  using Operand = PackedOperand<Unit, kKeys, kDType, kPadded, kFragments>;
  using Drop = Dropout<Unit, kKeys>;

  // For DenseMask: scores start from minus the log-sum-exp, and are finite.
  static constexpr int kScoreSteps = kSteps;
  static constexpr bool kUnscaledScores = true, kGuardsBias = false, kMaskAhead = kConfig.early_mask,
                        kMaskLate = kMasked && !kMaskAhead, kLateMask = false;
  // The next tile's mask is loaded when this one's is in its scores: the loop waits for all loads at its
  // head.
  static constexpr bool kMaskSooner = kMaskAhead && kDirect;
  // If arithmetic and scores use separate registers, scores are computed from the mask instead of being
  // changed by it.
  static constexpr bool kMaskFirst = kMaskAhead && kTraits.separate_acc_vgprs;
  static constexpr int kValuesAt = Keys::kBytes;
  static constexpr int kTilesBytes = kValuesAt + Values::Tile::kBytes;
  static constexpr int kOwnAt = (kRowMajor ? 2 : 1) * kTilesBytes;
  static constexpr int kOwnBytes = Q::kLdsBytes + Dout::kLdsBytes + Operand::kLdsBytes;  // per wave
  static constexpr int kLdsBytes = kOwnAt + kConfig.waves * kOwnBytes;
  static constexpr int kLdsAlignment = kDirect ? 64 : 16;  // see memory/direct.hpp
  static_assert(kLdsBytes <= kTraits.lds_bytes, "the tiles do not fit into LDS");
  static_assert(Unit::kN == kTraits.step_columns, "tables/isas.toml has another number of columns");
  static_assert(kConfig.waves == dq_config(kOp, kGfx, kDType, kHeadDim).waves,
                "tiles.toml: both loops need the same waves");

  const BwdArguments arguments;
  const Sequence sequence;
  const int batch, head, thread, lane, wave;
  const Visibility visible;
  const LdsBytes lds;
  const float factor;  // scale * log2(e)
  const LateDropout<kMasked, Raised<kGfx, kDType>> dropout;
  const int stores_dscores;

  // Of the lane's queries: start values of products, or lse and delta.
  struct Numbers {
    float lse[kColumns], delta[kColumns];
  };

  // Start values of the two products, in registers of matrix results: instructions read them there, without
  // copies. With a mask, scores have another start value in each tile. With late numbers, zero.
  static constexpr bool kKeepsStarts = kConfig.interleaved && !kFeatured && !kConfig.late_numbers;
  static constexpr bool kLateNumbers = kConfig.late_numbers && !kFeatured;
  static_assert(!kLateNumbers || !kMasked || kMaskSooner,
                "tiles.toml: with a mask, late_numbers needs direct");
  // Whether products with this mask start from zero, and the log-sum-exp is subtracted from exponents.
  template <class Mask>
  static constexpr bool kLateLse = (kLateNumbers && !kMasked) || Mask::kHidesLast;
  struct Starts {
    Result s, dp;
  };
  FA_DEVICE Starts starts(const Numbers& numbers) const {
    Starts starts;
    if constexpr (kKeepsStarts) {
      if constexpr (!kMasked) begin(starts.s, numbers.lse);
      begin(starts.dp, numbers.delta);
    }
    return starts;
  }

  FA_DEVICE DqBlock(BwdArguments arguments, const BwdParams& params, const WorkgroupPlace& place,
                    const Sequence& sequence, LdsBytes lds)
      : arguments(arguments),
        sequence(sequence),
        batch(place.batch),
        head(place.head),
        thread(__builtin_amdgcn_workitem_id_x()),
        lane(thread % Unit::kWave),
        wave(uniform(thread / Unit::kWave)),
        visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right},
        lds(lds),
        factor(uniform(Scoring::factor_of(params))),
        dropout(params),
        stores_dscores(has_dscores<DqBlock>(arguments)) {}

  FA_DEVICE Tiles tiles_of(int first_row, int wave_row) const {
    return {visible.tiles_of_rows(first_row, kTile.block_m, wave_row, Unit::kN, kKeys)};
  }

  // With `interleaved`, waves that multiply go first. Computing waves fill the gaps.
  template <int kPriority>
  FA_DEVICE static void prioritise() {
    if constexpr (kConfig.interleaved) __builtin_amdgcn_s_setprio(kPriority);
  }

  struct Source {
    HeadRows k, v;  // of the block's head
  };

  FA_DEVICE Source source(const BwdParams& params) const {
    const bool ragged = is_ragged<DqBlock>(params.cu_seqlens_k);
    // Skips an unneeded division, which all waves would wait for.
    const bool alone = kConfig.short_prologue && params.nheads == params.nheads_k;
    const int head_k = alone ? head : uniform(head / (params.nheads / params.nheads_k));
    return {rows_of(params.k, ragged, batch, head_k, sequence.k_first, sequence.seqlen_k),
            rows_of(params.v, ragged, batch, head_k, sequence.k_first, sequence.seqlen_k)};
  }

  // The lane that reads tiles and the thread that moves them, computed anew for each tile if registers are
  // short.
  FA_DEVICE int reader() const { return kFeatured ? here(lane) : lane; }
  FA_DEVICE int mover() const { return kFeatured ? here(thread) : thread; }
  FA_DEVICE LdsBytes own_area() const { return lds + kOwnAt + wave * kOwnBytes; }

  template <class Own, class Sign = QuerySign>
  FA_DEVICE Own load_own(const BwdParams& params, const BwdInput& tensor, float sign_of, int wave_row,
                         LdsBytes place) const {
    const bool ragged = is_ragged<DqBlock>(params.cu_seqlens_q);
    const HeadRows rows = rows_of(tensor, ragged, batch, head, sequence.q_first, sequence.seqlen_q);
    const BufferView<Unit::kN, Own::kSteps * Unit::kK * 2, kTraits.buffer_word3> view(rows, wave_row);
    Unchanged convert;
    return Own(place, view, Sign(sign_of), convert, lane);
  }

  template <bool kLate = kLateNumbers && !kMasked>
  FA_DEVICE Numbers load_numbers(const BwdParams& params, int wave_row) const {
    const bool ragged = is_ragged<DqBlock>(params.cu_seqlens_q);
    const int64_t at = (ragged ? 0 : batch) * params.lse_batch + head * params.lse_head + sequence.q_first;
    Numbers numbers;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float lse = 0, delta = 0;
      if constexpr (kConfig.short_prologue) {
        // Without a branch, behind which each would be waited for.
        const auto read = [&](const float* all) {
          const HeadRows rows{reinterpret_cast<const char*>(all + at), sizeof(float), sequence.seqlen_q};
          return NumberView(rows, wave_row).template read_at<float>(Unit::column(lane, c) * 4);
        };
        lse = read(params.lse), delta = read(params.delta);
      } else {
        const int row = wave_row + Unit::column(lane, c);
        const bool inside = row < sequence.seqlen_q;
        lse = inside ? params.lse[at + row] : 0;
        delta = inside ? params.delta[at + row] : 0;
      }
      lse = Scoring::shift(kMasked ? Scoring::masked_lse(lse) : lse, Raised<kGfx, kDType>::kLogPOfDq);
      numbers.lse[c] = kFeatured ? lse : kLate ? -lse : -lse / factor;
      numbers.delta[c] = kFeatured ? delta : dropout.minus_delta(delta);
    }
    return numbers;
  }

  // dS in the place of dP, or with kProductLast P in the place of S, from the tile `at`. `s` is for scores.
  // With kMaskSooner, it holds their start values.
  template <class Mask>
  FA_DEVICE void find(Result& dp, Result& s, LdsBytes at, int wave_row, int first, const Tiles& tiles,
                      const Q& q, const Dout& dout, const Numbers& numbers, const Starts& starts,
                      const Mask& given, const typename Mask::Early& ahead) const {
    const uint32_t bits = kFeatured ? kept_of(*this, wave_row, first) : 0;
    const auto hide = [&] {
      if constexpr (kMasked && !Mask::kHidesLast) {
        given.apply(s, first, ahead, Flag{-1}, kMaskLate ? numbers.lse : nullptr);
      }
    };
    const auto hide_later = [&] {
      if constexpr (!kMaskAhead) hide();
    };
    if constexpr (kLateLse<Mask>) {
      s[0] = {};
      dp[0] = kLateNumbers ? typename Unit::C{} : starts.dp[0];
      multiply_both<true>(*this, at, s, dp, q, dout, hide_later, numbers.lse[0]);
    } else if constexpr (kKeepsStarts) {
      if constexpr (kMaskFirst) given.start(s, numbers.lse, ahead);
      if constexpr (kMasked && !kMaskSooner && !kMaskFirst) begin<kMaskLate>(s, numbers.lse);
      if constexpr (kMaskAhead && !kMaskSooner && !kMaskFirst) hide();
      if constexpr (!kMasked) s[0] = starts.s[0];
      dp[0] = starts.dp[0];
      multiply_both(*this, at, s, dp, q, dout, hide_later);
    } else if constexpr (kLateNumbers) {
      dp[0] = {};
      multiply_both(*this, at, s, dp, q, dout, hide_later);
    } else if constexpr (!kConfig.interleaved) {
      begin<kMaskLate>(s, numbers.lse);
      multiply_rows<Unit, typename Keys::RowTile, kSteps, kConfig.steps_at_once, kAhead>(
          s, Keys::rows_of(at, 0), q, reader());
      hide_later();
      begin(dp, numbers.delta);
      multiply_rows<Unit, typename Values::Tile, kSteps, kConfig.steps_at_once, kAhead>(dp, at + kValuesAt,
                                                                                        dout, reader());
    } else {
      begin<kMaskLate>(s, numbers.lse);
      begin(dp, numbers.delta);
      multiply_both(*this, at, s, dp, q, dout, hide_later);
    }
    finish<Mask>(*this, dp, s, wave_row, first, tiles, numbers, starts, bits);
  }

  FA_DEVICE void add(LdsBytes at, const P& packed, Sums& sums) const {
    const Operand operand(own_area() + Q::kLdsBytes + Dout::kLdsBytes, lane, packed);
    if constexpr (kRowMajor) {
      const auto turned = turned_keys(at);
      const auto read = [&](int j) { return turned.read(j / kSumSteps, j % kSumSteps); };
      const auto multiply = [&](int j, const typename Unit::A& a) {
        Unit::multiply(sums[j % kSumSteps], a, operand.operand(j / kSumSteps));
      };
      read_ahead<Operand::kSteps * kSumSteps, kAhead>(read, multiply, Nothing());
    } else {
      multiply_transposed<Unit, typename Keys::TransposedTile, kSumSteps, kConfig.steps_at_once, kAhead>(
          sums, Keys::transposed_of(at, 0), operand, reader());
    }
  }

  FA_DEVICE auto turned_keys(LdsBytes at) const {
    if constexpr (kDirect) {
      using Tile = typename Turned::Stage::Turned;
      return Tile(at + Tile::offset(reader()));
    } else {
      return typename Turned::Turned(at, reader());
    }
  }

  template <bool kZero = false>
  FA_DEVICE void begin(Result& result, const float* number) const {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      // Opaque, or the compiler keeps all of them in registers.
      const float first = kZero ? 0 : kMasked && kConfig.interleaved ? here(number[c]) : number[c];
#pragma unroll
      for (int f = 0; f < P::kHeld; ++f) element<Unit>(result, c, f) = kFeatured ? 0 : first;
    }
    // WMMA adds to these in place, and leaves them for the next tile.
    if constexpr (!kFeatured && kFragments) return;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) Unit::settle(result[step]);
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
