// A mask of queries and keys, or a bias, in memory: what fa_fwd_masked_* do to scores before the softmax.
//
// Lanes are queries and hold runs of consecutive keys, so a lane reads runs of its own rows of the mask.
// Where products start from the softmax's shift, scores are without softmax_scale, and a bias is divided by
// it; elsewhere scores are multiplied by it on the way.  Either is one instruction a score for fp16.
#pragma once

#include "fa/kernel/block.hpp"
#include "fa/tile/tile_range.hpp"

namespace fa {

// Stands in for DenseMask in kernels that have none.
template <class B>
struct NoMask {
  struct Early {};

  FA_DEVICE NoMask(const B&, int, float) {}
  FA_DEVICE float softmax_factor(float factor) const { return factor; }
};

template <class B>
struct DenseMask {
  using Unit = typename B::Unit;
  static constexpr bool kFolded = !B::kTraits.matrix_coexecution;
  static constexpr int kHeld = B::kScoreSteps * Unit::kRows;  // keys of one column that a lane holds
  static constexpr int kRun = kHeld < 8 ? kHeld : 8;          // of these, consecutive ones
  static_assert(kRun == 8 || Unit::held_step(kHeld - 1) == kHeld - 1, "a lane's keys are runs of 8, or one");
  // A finite bias stays finite where it is divided by softmax_scale, and what hides a key (-inf) hides it.
  static constexpr float kLeast = -1e30f;

  using View = BufferView<Unit::kN, 0, B::kTraits.buffer_word3>;

  const B& block;
  MaskKind kind;
  float scale;  // softmax_scale, or its reciprocal where scores have none
  View view;
  int early_at;  // with kEarly, where the lane's part of a tile is

  FA_DEVICE DenseMask(const B& block, int wave_row, float scale)
      // The arguments of a masked kernel begin with those of a forward.
      : DenseMask(block, wave_row, scale, reinterpret_cast<const MaskedParams&>(block.params)) {}

  // In the units of the scores that `apply` leaves.
  FA_DEVICE float softmax_factor(float factor) const {
    return kFolded || kind == MaskKind::bytes ? factor : 1.44269504088896341f;
  }

  // What is loaded of a tile before its first product: 16 bytes of each run, which are all of it but of fp32.
  static constexpr bool kEarly = B::kConfig.early_mask;
  static_assert(!kEarly || (kRun == 8 && Unit::kColumns == 1), "tiles.toml: early_mask needs runs of 8 keys");
  struct Early {
    u32x4 words[kEarly ? kHeld / kRun : 1];
  };

  FA_DEVICE void begin(Early& early, int first, Flag needed) const {
    if constexpr (kEarly) {
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

  // Hides or changes the scores of the tile whose first key is `first`.
  FA_DEVICE void apply(typename Unit::C* s, int first, const Early& early, Flag needed) const {
    // One after the other: as branches of one decision they would spill.
    if (kind == MaskKind::bytes && needed) {
      each_run<1>(s, first, early, [&](float score, const uint32_t* words, int i) {
        if constexpr (B::kShortOfRegisters) {
          return (words[i / 4] & 1u << i % 4 * 8) != 0 ? score : -__builtin_inff();
        }
        // Two instructions without a condition.
        const int shown = static_cast<int>(words[i / 4] << (31 - i % 4 * 8)) >> 31;
        const int none = __builtin_bit_cast(int, -__builtin_inff());
        return __builtin_bit_cast(float, (__builtin_bit_cast(int, score) & shown) | (none & ~shown));
      });
    }
    if (kind == MaskKind::elements) {
      each_run<2>(s, first, early, [&](float score, const uint32_t* words, int i) {
        const uint32_t pair = words[i / 2];
        if constexpr (B::kDType == DType::fp16) {
          return add(score, __builtin_bit_cast(f16x2, pair)[i % 2]);
        } else {
          return add_any(score, __builtin_bit_cast(float, i % 2 != 0 ? pair & 0xffff0000 : pair << 16));
        }
      });
    }
    if (kind == MaskKind::fp32) {
      each_run<4>(s, first, early, [&](float score, const uint32_t* words, int i) {
        return add_any(score, __builtin_bit_cast(float, words[i]));
      });
    }
  }

 private:
  // `action(score, words, i)`: the new score of key i of a run, whose mask is in `words`.
  template <int kSize, class Action>
  FA_DEVICE void each_run(typename Unit::C* s, int first, const Early& early, Action action) const {
    // What follows from these would take registers through the loop.
    const int lane = here(block.lane);
    const int begin = (here_uniform(first) + Unit::held_begin(lane, B::kKeys)) * kSize;
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
      const int at = Unit::column(lane, c) * static_cast<int>(view.row_bytes) + begin;
#pragma unroll
      for (int f = 0; f < kHeld; f += kRun) {
        uint32_t words[(kRun * kSize + 3) / 4];
        if constexpr (kEarly && kSize < 4) {
#pragma unroll
          for (int i = 0; i < kRun * kSize / 4; ++i) words[i] = early.words[f / kRun][i];
        } else {
          read_run<kRun * kSize>(at + Unit::held_step(f) * kSize, words);
        }
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
          const int element = (f + i) % Unit::kRows * Unit::kColumns + c;
          float& score = reinterpret_cast<float*>(&s[(f + i) / Unit::kRows])[element];
          score = action(score, words, i);
        }
        // Else the compiler would load all runs at once, which takes more registers than there are.
        if constexpr (kSize == 4) __builtin_amdgcn_sched_barrier(0);
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

  FA_DEVICE DenseMask(const B& block, int wave_row, float scale, const MaskedParams& p)
      : block(block),
        kind(static_cast<MaskKind>(uniform(p.mask_kind))),
        scale(uniform(kFolded ? 1 / scale : scale)),
        view({static_cast<const char*>(p.mask) +
                  (block.batch * p.mask_batch + block.head * p.mask_head) * element_bytes(kind),
              p.mask_row * element_bytes(kind), block.sequence.seqlen_q},
             wave_row, mask_keys(p.fwd.seqlen_k) * static_cast<int>(element_bytes(kind))),
        early_at(kEarly ? early_place(block.lane) : 0) {}

  FA_DEVICE int early_place(int lane) const {
    return Unit::column(lane, 0) * static_cast<int>(view.row_bytes) +
           (Unit::held_begin(lane, B::kKeys) << early_shift());
  }

  FA_DEVICE int early_shift() const { return kind == MaskKind::bytes ? 0 : 1; }

  FA_DEVICE static int64_t element_bytes(MaskKind kind) {
    return kind == MaskKind::bytes ? 1 : kind == MaskKind::elements ? 2 : 4;
  }

  // Of fp16, which is finite also when it is divided.
  FA_DEVICE float add(float score, float bias) const {
    return kFolded ? __builtin_fmaf(bias, scale, score) : __builtin_fmaf(score, scale, bias);
  }

  FA_DEVICE float add_any(float score, float bias) const {
    if constexpr (!kFolded) return add(score, bias);
    const float sum = add(score, __builtin_fmaxf(bias, kLeast));
    return bias == -__builtin_inff() ? bias : sum;
  }
};

}  // namespace fa
