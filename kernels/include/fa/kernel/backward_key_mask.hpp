// A mask or a bias in memory, as the kernel of the gradients of K and V reads it: lanes are keys.
//
// Neighbouring lanes have neighbouring keys, so what a wave loads of one row is contiguous, and a lane loads
// one element, or one for each of its columns, of each of its rows.
#pragma once

#include "fa/kernel/backward_dkdv_block.hpp"
#include "fa/kernel/dense_mask.hpp"

namespace fa {

// The arguments of the backward kernels with a mask begin with those of the others.
FA_DEVICE const MaskedBwdParams& masked_here(BwdArguments arguments) {
  return reinterpret_cast<const MaskedBwdParams&>(loaded_here(arguments));
}

// Stands in for KeyMask in kernels that have none.
template <class B>
struct NoKeyMask {
  FA_DEVICE NoKeyMask(const B&, int) {}
  FA_DEVICE void begin(const B&, int, int, int = 0) {}
  FA_DEVICE void apply(const B&, typename B::Result&, int, int, int = 0) {}
};

// Of a head of q, for the waves that compute P.
template <class B>
struct KeyMask {
  using Unit = typename B::Unit;
  static constexpr int kColumns = Unit::kColumns, kHeld = B::P::kHeld;
  static_assert(kColumns == 1 || Unit::column(0, kColumns - 1) == kColumns - 1, "columns are neighbours");
  static constexpr bool kEarly = B::kConfig.early_mask;
  // Rows of a lane that are loaded at once.
  static constexpr int kAtOnce = !kEarly && kHeld > 8 ? 8 : kHeld;
  // Scores begin with minus the log-sum-exp, and are finite.
  using Score = MaskedScore<B::kDType, true, false, false>;
  using View = BufferView<B::kQueries, 0, B::kTraits.buffer_word3>;

  HeadRows rows;
  MaskKind kind;
  int row_end;  // bytes of a row
  Score score;
  // What is loaded of a tile: for each of the lane's rows, as many words as its columns may take.
  struct Tile {
    uint32_t words[kAtOnce][kColumns];
  } tile[kEarly ? B::kColumnBlocks : 1];

  FA_DEVICE KeyMask(const B& block, int head_q) {
    const MaskedBwdParams& p = masked_here(block.arguments);
    kind = static_cast<MaskKind>(uniform(p.mask_kind));
    const int64_t bytes = bytes_of(kind);
    rows = {static_cast<const char*>(p.mask) + (block.batch * p.mask_batch + head_q * p.mask_head) * bytes,
            p.mask_row * bytes, block.sequence.seqlen_q};
    row_end = mask_keys(p.bwd.seqlen_k) * static_cast<int>(bytes);
    score.scale = uniform(Scoring::kLog2e / block.factor);
  }

  // Of the tile of queries from `first` on, before its scores are there.
  FA_DEVICE void begin(const B& block, int first, int wave_key, int columns = 0) {
    if constexpr (!kEarly) return;
    if (kind == MaskKind::bytes) {
      load<1>(block, tile[columns].words, first, wave_key, 0);
    } else if (kind == MaskKind::elements) {
      load<2>(block, tile[columns].words, first, wave_key, 0);
    } else {
      load<4>(block, tile[columns].words, first, wave_key, 0);
    }
  }

  // Hides or changes the scores of the tile.
  FA_DEVICE void apply(const B& block, typename B::Result& s, int first, int wave_key, int columns = 0) {
    if (kind == MaskKind::bytes) {
      each_row<1>(block, s, first, wave_key, columns,
                  [&](float x, const uint32_t* words, int c) { return Score::shown(x, words, c); });
    } else if (kind == MaskKind::elements) {
      each_row<2>(block, s, first, wave_key, columns,
                  [&](float x, const uint32_t* words, int c) { return score.with_element(x, words, c); });
    } else {
      each_row<4>(block, s, first, wave_key, columns,
                  [&](float x, const uint32_t* words, int c) { return score.with_fp32(x, words, c); });
    }
  }

 private:
  // `action(score, words, c)`: the new score of a row and column c, of which `words` are the mask.
  template <int kSize, class Action>
  FA_DEVICE void each_row(const B& block, typename B::Result& s, int first, int wave_key, int columns,
                          const Action& action) {
    uint32_t (*const words)[kColumns] = tile[kEarly ? columns : 0].words;
#pragma unroll
    for (int part = 0; part < kHeld; part += kAtOnce) {
      if constexpr (!kEarly) load<kSize>(block, words, first, wave_key, part);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int f = part; f < part + kAtOnce; ++f) {
          float& x = element<Unit>(s, c, f);
          x = action(x, words[kEarly ? f : f - part], c);
        }
      }
      if constexpr (kAtOnce < kHeld) __builtin_amdgcn_sched_barrier(0);
    }
  }

  // Of kAtOnce rows.
  template <int kSize>
  FA_DEVICE void load(const B& block, uint32_t (*words)[kColumns], int first, int wave_key, int part) const {
    const View view(rows, here_uniform(first), row_end);
    const int lane = block.lane_again();
    const int at = view.offset_of(Unit::held_begin(lane, B::kQueries),
                                  (here_uniform(wave_key) + Unit::column(lane, 0)) * kSize);
    constexpr int kBytes = kColumns * kSize;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, ++words) {
      const int row = here_uniform(static_cast<int>(Unit::held_step(part + i) * view.row_bytes));
      if constexpr (kBytes == 1) {
        (*words)[0] = view.template read_at<uint8_t>(at, row);
      } else if constexpr (kBytes == 2) {
        (*words)[0] = view.template read_at<uint16_t>(at, row);
      } else if constexpr (kBytes == 4) {
        (*words)[0] = view.template read_at<uint32_t>(at, row);
      } else if constexpr (kBytes == 8) {
        const u32x2 found = view.template read_at<u32x2>(at, row);
        (*words)[0] = found[0], (*words)[1] = found[1];
      } else {
        const u32x4 found = view.template read_at<u32x4>(at, row);
#pragma unroll
        for (int c = 0; c < 4; ++c) (*words)[c] = found[c];
      }
    }
  }
};

template <class B>
using KeyMaskOf = Choice<B::kMasked, KeyMask<B>, NoKeyMask<B>>;

}  // namespace fa
