// A mask or bias in memory, as read by the kernel of the gradients of K and V: lanes are keys.
//
// Neighbouring lanes have neighbouring keys, so a wave's loads of one row are contiguous. A lane loads one
// element of each of its rows, or one per column.
#pragma once

#include "device/backward/dkdv/block.hpp"
#include "device/masks/dense_mask.hpp"

namespace fa {

// The arguments of the backward kernels with a mask begin with the unmasked kernels' arguments.
FA_DEVICE const MaskedBwdParams& masked_here(BwdArguments arguments) {
  return reinterpret_cast<const MaskedBwdParams&>(loaded_here(arguments));
}

// Replaces KeyMask in kernels without a mask.
template <class B>
struct NoKeyMask {
  static constexpr bool kAhead = false;

  FA_DEVICE NoKeyMask(const B&, int) {}
  FA_DEVICE void apply(const B&, typename B::Result&, int, int) const {}
  FA_DEVICE void load(const B&, typename B::Result&, int, int) const {}
  FA_DEVICE void begin(const B&, typename B::Result&, int) const {}
};

// For a head of q, in the waves that compute P.
template <class B>
struct KeyMask {
  using Unit = typename B::Unit;
  static constexpr int kColumns = Unit::kColumns, kHeld = B::P::kHeld;
  static_assert(kColumns == 1 || Unit::column(0, kColumns - 1) == kColumns - 1, "columns are neighbours");
  // Whether a tile's mask is loaded while the previous tile is in use, into the registers of its scores,
  // which then start from it. Otherwise it is loaded when they are there, this many rows of a lane at once.
  static constexpr bool kAhead = B::kConfig.early_mask;
  static_assert(kAhead == B::Numbers::kByWave,
                "tiles.toml: with a mask, ping_pong and early_mask need each other");
  static constexpr int kAtOnce = kHeld > 8 ? 8 : kHeld;
  // A row's number is minus the log-sum-exp, and finite.
  using Score = MaskedScore<B::kDType, true, false, Hiding::by_bits>;
  using View = BufferView<B::kQueries, 0, B::kTraits.buffer_word3>;
  using Words = uint32_t[kColumns];  // for one row, for the most columns

  HeadRows rows;
  MaskKind kind;
  int row_end;  // bytes of a row
  Score score;

  FA_DEVICE KeyMask(const B& block, int head_q) {
    const MaskedBwdParams& p = masked_here(block.arguments);
    kind = static_cast<MaskKind>(uniform(p.mask_kind));
    const int64_t bytes = bytes_of(kind);
    rows = {static_cast<const char*>(p.mask) + (block.batch * p.mask_batch + head_q * p.mask_head) * bytes,
            p.mask_row * bytes, block.sequence.seqlen_q};
    row_end = mask_keys(p.bwd.seqlen_k) * static_cast<int>(bytes);
    score.scale = uniform(Scoring::kLog2e / block.factor);
  }

  // Hides or changes the scores of the tile of queries from `first` on, which started from 0. A row's number
  // is added to its biases first, so large ones leave the later sum exact.
  FA_DEVICE void apply(const B& block, typename B::Result& s, int first, int wave_key) const {
    if (kind == MaskKind::bytes) {
      each_row<1>(block, s, first, wave_key, [&](float x, float own, const uint32_t* words, int c) {
        return Score::shown(x + own, words, c);
      });
    } else if (kind == MaskKind::elements) {
      each_row<2>(block, s, first, wave_key, [&](float x, float own, const uint32_t* words, int c) {
        return x + score.with_element(own, words, c);
      });
    } else {
      each_row<4>(block, s, first, wave_key, [&](float x, float own, const uint32_t* words, int c) {
        return x + score.with_fp32(own, words, c);
      });
    }
  }

  // With kAhead: loads the tile's mask into its scores' registers, and converts it to their start values.
  // Loads the dword of each element: with one kind of load, the compiler waits for none of them.
  FA_DEVICE void load(const B& block, typename B::Result& s, int first, int wave_key) const {
    const View view(rows, here_uniform(first), row_end);
    const int at =
        view.offset_of(Unit::held_begin(block.lane_again(), B::kQueries), byte_of(block, wave_key) & ~3);
    each_element<Unit, kHeld>(
        s, [&](float, int, int f) { return view.template read_at<float>(at + row_of(view, f)); });
  }
  FA_DEVICE void begin(const B& block, typename B::Result& s, int wave_key) const {
    const uint32_t shift = (byte_of(block, wave_key) & 3) * 8;
    const auto each = [&](const auto& action) {
      // bf16 one after the other, or some would be spilled.
      each_element<Unit, kHeld, B::kDType == DType::bf16>(
          s, [&](float x, int, int) { return action(__builtin_bit_cast(uint32_t, x)); });
    };
    if (kind == MaskKind::bytes) {
      each([&](uint32_t word) { return Score::start_of_byte(word, shift); });
    } else if (kind == MaskKind::elements) {
      each([&](uint32_t word) {
        const uint32_t own = word >> shift;
        return score.with_element(0, &own, 0);
      });
    } else {
      each([&](uint32_t word) { return score.with_fp32(0, &word, 0); });
    }
  }

 private:
  // Distance of row `f` of a lane from its first. It counts in the vector's offset: on some GPUs a resource's
  // range check skips the scalar offset, and rows behind the last would be read.
  FA_DEVICE static int row_of(const View& view, int f) {
    return here_uniform(static_cast<int>(Unit::held_step(f) * view.row_bytes));
  }
  // Offset of the lane's key in a row.
  FA_DEVICE int byte_of(const B& block, int wave_key) const {
    const int key = here_uniform(wave_key) + Unit::column(block.lane_again(), 0);
    return key << (kind == MaskKind::bytes ? 0 : kind == MaskKind::elements ? 1 : 2);
  }

  // `action(score, number, words, c)`: the new score of a row with this number and of column c. `words` holds
  // its mask.
  template <int kSize, class Action>
  FA_DEVICE void each_row(const B& block, typename B::Result& s, int first, int wave_key,
                          const Action& action) const {
#pragma unroll
    for (int part = 0; part < kHeld; part += kAtOnce) {
      Words words[kAtOnce];
      read<kSize, kAtOnce>(block, words, first, wave_key, part);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          float& x = element<Unit>(s, c, part + i);
          x = action(x, block.number(part + i), words[i], c);
        }
      }
      if constexpr (kAtOnce < kHeld) __builtin_amdgcn_sched_barrier(0);
    }
  }

  // kCount rows of a lane, from number `part` on.
  template <int kSize, int kCount>
  FA_DEVICE void read(const B& block, Words* words, int first, int wave_key, int part) const {
    const View view(rows, here_uniform(first), row_end);
    const int lane = block.lane_again();
    const int at = view.offset_of(Unit::held_begin(lane, B::kQueries),
                                  (here_uniform(wave_key) + Unit::column(lane, 0)) * kSize);
    constexpr int kBytes = kColumns * kSize;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int from = at + row_of(view, part + i);
      if constexpr (kBytes == 1) {
        words[i][0] = view.template read_at<uint8_t>(from);
      } else if constexpr (kBytes == 2) {
        words[i][0] = view.template read_at<uint16_t>(from);
      } else if constexpr (kBytes == 4) {
        words[i][0] = view.template read_at<uint32_t>(from);
      } else if constexpr (kBytes == 8) {
        const u32x2 found = view.template read_at<u32x2>(from);
        words[i][0] = found[0], words[i][1] = found[1];
      } else {
        const u32x4 found = view.template read_at<u32x4>(from);
#pragma unroll
        for (int c = 0; c < 4; ++c) words[i][c] = found[c];
      }
    }
  }
};

template <class B>
using KeyMaskOf = Choice<B::kMasked, KeyMask<B>, NoKeyMask<B>>;

}  // namespace fa
