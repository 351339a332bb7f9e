// Applies a mask or bias of queries and keys to scores before the softmax, in kernels with queries as lanes.
//
// Lanes hold runs of consecutive keys, so a lane reads runs of its own rows of the mask. If products start
// from the softmax's shift, scores lack softmax_scale, and a bias is divided by it. Otherwise scores are
// multiplied by it on the way. For fp16 both take one instruction per score.
#pragma once

#include "device/call/arguments.hpp"
#include "device/call/config.hpp"
#include "device/call/params.hpp"
#include "device/masks/late_mask.hpp"
#include "device/masks/masked_score.hpp"
#include "device/masks/tile_range.hpp"
#include "device/memory/view.hpp"

namespace fa {

// Replaces DenseMask in kernels without a mask.
template <class B>
struct NoMask {
  static constexpr bool kInTurn = false, kHidesLast = false;
  struct Early {};

  FA_DEVICE NoMask(const B&, int, float) {}
  FA_DEVICE float softmax_factor(float factor) const { return factor; }
};

FA_DEVICE int64_t bytes_of(MaskKind kind) {
  return kind == MaskKind::bytes ? 1 : kind == MaskKind::elements ? 2 : 4;
}

FA_DEVICE int keys_of(const MaskedParams& p) { return p.fwd.seqlen_k; }
FA_DEVICE int keys_of(const MaskedBwdParams& p) { return p.bwd.seqlen_k; }

// kMasks: the masks handled by the loop.
template <class B, Masks kMasks = Masks::any, Hiding kHiding = Hiding::by_bits>
struct DenseMask {
  using Unit = typename B::Unit;
  static constexpr bool kUnscaled = B::kUnscaledScores;
  static constexpr int kHeld = B::kScoreSteps * Unit::kRows;  // keys of one column held by a lane
  static constexpr int kRun = kHeld < 8 ? kHeld : 8;          // consecutive ones of these
  static_assert(kRun == 8 || Unit::held_step(kHeld - 1) == kHeld - 1, "a lane's keys are runs of 8, or one");
  using Score = MaskedScore<B::kDType, kUnscaled, B::kGuardsBias, kHiding>;

  using View = BufferView<Unit::kN, 0, B::kTraits.buffer_word3>;

  // The kind from the kernel's argument. The compiler knows which kinds the loop excludes.
  FA_DEVICE static MaskKind kind_of(int32_t argument) {
    if constexpr (kMasks == Masks::boolean) return MaskKind::bytes;
    const int found = uniform(argument);
    if constexpr (kMasks == Masks::biases) __builtin_assume(found != static_cast<int>(MaskKind::bytes));
    return static_cast<MaskKind>(found);
  }

  const B& block;
  MaskKind kind;
  Score score;
  typename View::Part rows;
  View view;
  int early_at;  // with kPlaced: place of the lane's part of a tile

  // For a forward kernel: its block has the first of the masked kernel's arguments.
  FA_DEVICE DenseMask(const B& block, int wave_row, float scale)
      : DenseMask(block, wave_row, scale, masked_params(block)) {}

  // `p`: the kernel's arguments. `scale`: softmax_scale.
  template <class Params>
  FA_DEVICE DenseMask(const B& block, int wave_row, float scale, const Params& p)
      : block(block),
        kind(kind_of(p.mask_kind)),
        score{uniform(kUnscaled ? 1 / scale : scale)},
        rows(View::part_of({static_cast<const char*>(p.mask) +
                                (block.batch * p.mask_batch + block.head * p.mask_head) * bytes_of(kind),
                            p.mask_row * bytes_of(kind), block.sequence.seqlen_q},
                           wave_row, mask_keys(keys_of(p)) * static_cast<int>(bytes_of(kind)))),
        view(rows),
        early_at(kPlaced ? early_place(block.lane) : 0) {}

  // In the units of the scores after `apply`.
  FA_DEVICE float softmax_factor(float factor) const {
    return kUnscaled || kind == MaskKind::bytes ? factor : 1.44269504088896341f;
  }

  // Loads of a tile's mask before its first product: 16 bytes of each run, which covers all except fp32. With
  // kMaskAhead, everything. With kInTurn, they start while the previous tile is in use, and fp32 is excluded.
  static constexpr bool kEarly = B::kConfig.early_mask, kAll = B::kMaskAhead;
  // Boolean masks hide keys from exponents, and a register is free for the lane's place.
  static constexpr bool kLate = B::kLateMask, kPlaced = kEarly || kLate;
  static_assert(!kLate || (kUnscaled && Unit::kColumns == 1),
                "tiles.toml: late_mask needs products that start from the shift");
  static_assert(!kEarly || (kRun == 8 && Unit::kColumns == 1), "tiles.toml: early_mask needs runs of 8 keys");
  static constexpr bool kInTurn = kEarly && kMasks != Masks::any;  // loops per kind of mask
  using Words = Choice<kMasks == Masks::boolean, u32x2, u32x4>;
  // Whether hidden elements are cleared when dS is rounded, two at once. Until then they may be infinite or
  // NaN.
  static constexpr bool kHidesLast = kAll && kMasks == Masks::boolean;
  struct Early {
    Words words[kEarly ? kHeld / kRun : 1];
    u32x4 more[kAll && !kHidesLast ? kHeld / kRun : 1];
  };

  FA_DEVICE void begin(Early& early, int first, Flag needed) const {
    if constexpr (kAll) {
      // One kind of load for all masks, so the compiler waits for none of them.
      const int shift = early_shift();
      load_runs(early.words, first, shift, 0);
      // The known shift, where the other would spill registers.
      if (kind == MaskKind::fp32) load_runs(early.more, first, kMasks == Masks::any ? shift : 2, 16);
    } else if constexpr (kInTurn) {
      // Without a branch. Behind one the compiler would wait for the loads just started. A tile that needs no
      // mask reads beyond its end.
      const bool reads = kMasks == Masks::boolean ? static_cast<bool>(needed) : kind == MaskKind::elements;
      const View read({rows.base, reads ? rows.bytes : 0, rows.row_bytes});
      const int shift = early_shift();
#pragma unroll
      for (int f = 0; f < kHeld; f += kRun) {
        const int at = early_at + ((first + Unit::held_step(f)) << shift);
        early.words[f / kRun] = read.template read_at<Words>(at);
      }
    } else if constexpr (kEarly) {
#pragma unroll
      for (u32x4& words : early.words) words = anything<u32x4>();
      if (kind == MaskKind::fp32 || !needed) return;
      const int shift = early_shift();
#pragma unroll
      for (int f = 0; f < kHeld; f += kRun) {
        const int key = first + Unit::held_step(f);
        early.words[f / kRun] = view.template read_at<u32x4>(early_at + (key << shift));
      }
    }
  }

  // With kInTurn: starts to load the mask of the first tile that the wave sees. From there it sees every tile
  // up to its last.
  template <class Tiles, class Shown>
  FA_DEVICE void begin_first(Early& early, const Tiles& tiles, const Shown& shown) const {
    const int seen = tiles.wave_begin / B::kKeys * B::kKeys;
    const int first = tiles.begin < seen ? seen : tiles.begin;
    begin(early, first, shown.needs_mask(first));
  }

  // With kInTurn: does the work of `apply`, and starts to load the next tile's mask.
  template <class Shown>
  FA_DEVICE void apply_in_turn(typename Unit::C* s, int first, Early& early, const Shown& shown) const {
    apply(s, first, early, shown.needs_mask(first));
    // Opaque twice: a value derived from another would occupy registers through the loop.
    const auto next = [&] { return here_uniform(first) + B::kKeys; };
    begin(early, next(), shown.needs_mask(next()));
  }

  // With kAll, and products starting from minus the log-sum-exp: sets the start values of the tile's
  // products.
  FA_DEVICE void start(typename Unit::C* s, const float* lse, const Early& early) const {
    static_assert(kAll && kUnscaled, "of what was loaded");
    if (kind == MaskKind::bytes) {
      start_of<1>(s, early, [&](const uint32_t* words, int i) { return Score::shown(lse[0], words, i); });
    } else if (kind == MaskKind::elements) {
      // Opaque: the compiler would convert each element and then add two at once.
      start_of<2>(s, early,
                  [&](const uint32_t* words, int i) { return here(score.with_element(lse[0], words, i)); });
    } else {
      // Opaque if registers are short: sums of two at once would need copies of the number.
      start_of<4>(s, early, [&](const uint32_t* words, int i) {
        const float start = score.with_fp32(lse[0], words, i);
        return B::kLateNumbers ? here(start) : start;
      });
    }
  }

  // With kHidesLast: clears hidden elements of dS, also infinities and NaN.
  template <class P>
  FA_DEVICE void hide(P& packed, const Early& early) const {
#pragma unroll
    for (int f = 0; f < kHeld; f += 4) {
      const uint32_t word = early.words[f / kRun][f % kRun / 4];
      // A key's bit becomes the sign of a half, which perm repeats: instructions that run beside a product.
      const uint32_t even = word << 15, odd = word << 7;
      uint32_t* const both = reinterpret_cast<uint32_t*>(&packed.chunk[0][f / kRun]) + f % kRun / 2;
      both[0] &= __builtin_amdgcn_perm(odd, even, 0x0a0a0808);
      both[1] &= __builtin_amdgcn_perm(odd, even, 0x0b0b0909);
    }
  }

  // Hides or changes the scores of the tile with first key `first`. `apart`: addend of each column's scores.
  // It is added to the biases first, so large ones leave the later sum exact.
  FA_DEVICE void apply(typename Unit::C* s, int first, const Early& early, Flag needed,
                       const float* apart = nullptr) const {
    // One after the other: as branches of one decision they would spill.
    if (!kLate && kind == MaskKind::bytes && needed) {
      each_run<1>(s, first, early, [&](float x, const uint32_t* words, int i, int c) {
        return Score::shown(apart != nullptr ? x + apart[c] : x, words, i);
      });
    }
    if (kind == MaskKind::elements) {
      each_run<2>(s, first, early, [&](float x, const uint32_t* words, int i, int c) {
        return apart != nullptr ? x + score.with_element(apart[c], words, i)
                                : score.with_element(x, words, i);
      });
    }
    if (kind == MaskKind::fp32) {
      each_run<4>(s, first, early, [&](float x, const uint32_t* words, int i, int c) {
        return apart != nullptr ? x + score.with_fp32(apart[c], words, i) : score.with_fp32(x, words, i);
      });
    }
  }

  // With kLate: the boolean mask of the tile with first key `first`.
  FA_DEVICE LateMask<DenseMask> late(int first, const Early& early, Flag needed) const {
    return {*this, first, early, {kind == MaskKind::bytes ? needed.sign : 0}};
  }

 private:
  friend LateMask<DenseMask>;

  // Loads a part of each run, from byte `byte` on.
  template <class Part>
  FA_DEVICE void load_runs(Part* parts, int first, int shift, int byte) const {
#pragma unroll
    for (int f = 0; f < kHeld; f += kRun) {
      const int at = early_at + ((first + Unit::held_step(f)) << shift) + byte;
      parts[f / kRun] = view.template read_at<Part>(at);
    }
  }

  // `action(words, i)`: the score of key i of a run. `words` holds its mask.
  template <int kSize, class Action>
  FA_DEVICE static void start_of(typename Unit::C* s, const Early& early, const Action& action) {
#pragma unroll
    for (int f = 0; f < kHeld; ++f) {
      uint32_t words[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) words[i] = i < 4 ? early.words[f / kRun][i] : early.more[f / kRun][i - 4];
      reinterpret_cast<float*>(&s[f / Unit::kRows])[f % Unit::kRows] = action(words, f % kRun);
    }
  }

  // `action(score, words, i, c)`: the new score of key i of a run and of column c. `words` holds its mask.
  template <int kSize, class Action>
  FA_DEVICE void each_run(typename Unit::C* s, int first, const Early& early, Action action) const {
    // Opaque: values derived from these would occupy registers through the loop.
    const int lane = kLate ? 0 : here(block.lane);
    const int begin = (here_uniform(first) + Unit::held_begin(lane, B::kKeys)) * kSize;
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
      const int at = kLate ? early_at + here_uniform(first) * kSize
                           : Unit::column(lane, c) * static_cast<int>(view.row_bytes) + begin;
#pragma unroll
      for (int f = 0; f < kHeld; f += kRun) {
        uint32_t words[(kRun * kSize + 3) / 4];
        if constexpr (kEarly && (kSize < 4 || kAll)) {
#pragma unroll
          for (int i = 0; i < kRun * kSize / 4; ++i) {
            words[i] = i < 4 ? early.words[f / kRun][i] : early.more[f / kRun][i - 4];
          }
        } else {
          read_run<kRun * kSize>(at + Unit::held_step(f) * kSize, words);
        }
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
          const int element = (f + i) % Unit::kRows * Unit::kColumns + c;
          float& score = reinterpret_cast<float*>(&s[(f + i) / Unit::kRows])[element];
          score = action(score, words, i, c);
        }
        // Otherwise the compiler would load all runs at once and exceed the registers.
        if constexpr (kSize == 4 && !kAll) __builtin_amdgcn_sched_barrier(0);
      }
    }
  }

  template <int kBytes>
  FA_DEVICE void read_run(int at, uint32_t* words) const {
    if constexpr (kBytes == 2) {
      words[0] = view.template read_at<uint16_t>(at);
    } else if constexpr (kBytes == 4) {
      words[0] = view.template read_at<uint32_t>(at);
    } else if constexpr (kBytes == 8) {
      const u32x2 read = view.template read_at<u32x2>(at);
      words[0] = read[0], words[1] = read[1];
    } else {
#pragma unroll
      for (int byte = 0; byte < kBytes; byte += 16) {
        const u32x4 read = view.template read_at<u32x4>(at + byte);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[byte / 4 + i] = read[i];
      }
    }
  }

  FA_DEVICE int early_place(int lane) const {
    return Unit::column(lane, 0) * static_cast<int>(view.row_bytes) +
           (Unit::held_begin(lane, B::kKeys) << early_shift());
  }

  FA_DEVICE int early_shift() const {
    return kind == MaskKind::bytes ? 0 : (kAll || kLate) && kind == MaskKind::fp32 ? 2 : 1;
  }
};

}  // namespace fa
