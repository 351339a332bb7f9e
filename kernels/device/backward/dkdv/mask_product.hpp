// A mask or bias in memory, as read by the loop of dkdv/staggered.hpp: lanes are keys, and a tile's mask is
// loaded while the previous one is in use.
//
// All waves load: with a branch around the loads, the compiler would copy the loaded values and wait for
// them. Waves that compute dP have no rows, so their loads fetch nothing. For the same reason fp32 has its
// own loop.
#pragma once

#include "device/backward/dkdv/key_mask.hpp"
#include "device/masks/mask_product.hpp"

namespace fa {

// Replaces the others in kernels without a mask.
template <class B>
struct NoMaskAhead {
  static constexpr int kSets = 1;
  static constexpr bool kEarly = true, kPlainNumbers = false, kMayHaveRanges = false;
  struct Words {};

  template <class Loads>
  FA_DEVICE NoMaskAhead(const B&, int, int, const Loads&) {}
  FA_DEVICE void next_head(const B&) {}
  FA_DEVICE void load(Words&, int) const {}
  FA_DEVICE void begin(const B&, typename B::Result&, const Words&, float, int) const {}
};

// For the heads of q that share a head of k.
template <class B>
struct MaskAhead {
  using View = BufferView<B::kQueries, 0, B::kTraits.buffer_word3>;
  static_assert(B::kSteps == 1 && B::Unit::kN == 32 && B::P::kHeld == 16, "a step's rows and columns");
  // Registers are available for this many tiles.
  static constexpr int kSets = B::kConfig.waves_per_simd > 2 ? 1 : B::kAtOnce;
  static constexpr int kNoRows = -(1 << 30);  // also for a tile's first row below 0

  const char*& base;  // of the head, in the registers of the other waves' tile addresses
  uint32_t row_bytes;
  int rows;
  int row_end;  // bytes of a row
  int bytes;    // of an element
  float scale;  // 1 / softmax_scale
  int wave_key;
  int at;  // offset of the lane in a tile's mask

  // `group`: heads of q that share the head of k.
  template <class Loads>
  FA_DEVICE MaskAhead(const B& block, int wave_key, int group, Loads& loads)
      : base(loads.q), wave_key(wave_key) {
    const MaskedBwdParams& p = masked_here(block.arguments);
    bytes = static_cast<int>(bytes_of(static_cast<MaskKind>(uniform(p.mask_kind))));
    const int head_q = block.head_k * group;
    const char* const first =
        static_cast<const char*>(p.mask) + (block.batch * p.mask_batch + head_q * p.mask_head) * bytes;
    if (block.is(Role::weights)) base = first;
    row_bytes = static_cast<uint32_t>(p.mask_row * bytes);
    rows = block.is(Role::weights) ? block.sequence.seqlen_q : kNoRows;
    row_end = mask_keys(p.bwd.seqlen_k) * bytes;
    scale = uniform(Scoring::kLog2e / block.factor);
  }

  // Registers shared by the values of waves that compute P and the values of the other waves, which load
  // tiles.
  template <class Loads>
  FA_DEVICE void share(bool of_weights, Loads& loads) {
    at = here(of_weights ? at : static_cast<int>(loads.of_q.from));
    loads.of_q.from = static_cast<uint32_t>(at);
    row_bytes = here_uniform(static_cast<int>(of_weights ? row_bytes : loads.q_bytes));
    loads.q_bytes = loads.of_q.row_bytes = row_bytes;
    row_end = here_uniform(of_weights ? row_end : static_cast<int>(loads.dout_bytes));
    loads.dout_bytes = loads.of_dout.row_bytes = static_cast<uint32_t>(row_end);
  }

  FA_DEVICE void next_head(const B& block) {
    if (block.is(Role::weights)) base += masked_here(block.arguments).mask_head * bytes;
  }

  // The rows of the tile from `first` on.
  FA_DEVICE View view(int first) const {
    return {{base, static_cast<int64_t>(row_bytes), rows}, here_uniform(first), row_end};
  }
};

// For bytes, and for elements of the tensors' type: a lane loads 16 keys of one row, and the matrix unit
// turns them (masks/mask_product.hpp).
template <class B>
struct TurnedMask : MaskAhead<B> {
  using Base = MaskAhead<B>;
  using Unit = typename B::Unit;
  using A = typename Unit::A;
  using Product = MaskProduct<Unit, B::kDType>;
  static constexpr bool kEarly = true;  // the next words are loaded as soon as these are used
  // The mask is added to numbers of the rows, and then the sum is divided by softmax_scale.
  static constexpr bool kPlainNumbers = true, kMayHaveRanges = true;
  // For bytes the first part is all.
  struct Words {
    A part[2];
  };

  uint32_t number;  // of the diagonal

  template <class Loads>
  FA_DEVICE TurnedMask(const B& block, int wave_key, int group, Loads& loads)
      : Base(block, wave_key, group, loads) {
    const int lane = block.lane, row = Unit::slot_of_row(Unit::a_row(lane), B::kQueries);
    this->at = row * static_cast<int>(this->row_bytes) + (wave_key + lane / 32 * 16) * this->bytes;
    number = Product::number(Unit::column(lane, 0) % 8, this->bytes == 1);
    this->share(block.is(Role::weights), loads);
    number = here(block.is(Role::weights) ? number : loads.of_dout.from);
    loads.of_dout.from = number;
  }

  FA_DEVICE void load(Words& words, int first) const {
    const auto view = this->view(first);
    const int own = here(this->at);
    words.part[0] = view.template read_at<A>(own);
    words.part[1] = view.template read_at<A>(own + 16);
  }

  // Start values of scores: the mask, and the half's numbers of `term` for the rows of the tile.
  FA_DEVICE void begin(const B& block, typename B::Result& s, const Words& words, float term,
                       int half) const {
    A runs[2] = {words.part[0], words.part[1]};
    if (this->bytes == 1) {
      runs[1] = Product::of_bytes(runs[0][2], runs[0][3]);
      runs[0] = Product::of_bytes(runs[0][0], runs[0][1]);
    } else {
      const int keys = block.sequence.seqlen_k - here_uniform(this->wave_key);
      if (keys < Unit::kN) {
#pragma unroll
        for (int run = 0; run < 2; ++run) {
          runs[run] = Product::only(runs[run], keys - block.lane_again() / 32 * 16 - run * 8);
        }
      }
#pragma unroll
      for (A& run : runs) run = Product::finite(run);
    }
    s[0] = Unit::broadcast_half(term, block.lane, half);
    const bool of_bytes = here_uniform(this->bytes) == 1;
#pragma unroll
    for (int run = 0; run < 2; ++run) {
      // Column n of the product is key n, in one of the two runs of lanes n / 16 * 32 to + 31.
      Unit::multiply(s[0], runs[run], {{Product::diagonal(number, run, of_bytes)}});
    }
    B::each(s, [&](float x, int, int) { return x * this->scale; });
  }
};

// For fp32: a lane loads its own key's element of each of its rows.
template <class B>
struct Fp32Mask : MaskAhead<B> {
  using Base = MaskAhead<B>;
  using Unit = typename B::Unit;
  static constexpr bool kPlainNumbers = false, kMayHaveRanges = false;  // has_ranges()
  static constexpr bool kEarly = Base::kSets > 1;  // or where the exponentials have left registers
  using Words = typename B::Result;

  template <class Loads>
  FA_DEVICE Fp32Mask(const B& block, int wave_key, int group, Loads& loads)
      : Base(block, wave_key, group, loads) {
    this->at = Unit::held_begin(block.lane, B::kQueries) * static_cast<int>(this->row_bytes) +
               (wave_key + Unit::column(block.lane, 0)) * 4;
    this->share(block.is(Role::weights), loads);
  }

  FA_DEVICE void load(Words& words, int first) const {
    const auto view = this->view(first);
    B::each(words, [&](float, int, int f) {
      const int row = here_uniform(static_cast<int>(Unit::held_step(f) * this->row_bytes));
      return view.template read_at<float>(this->at + row);
    });
  }

  FA_DEVICE void begin(const B& block, typename B::Result& s, const Words& words, float term,
                       int half) const {
    s[0] = words[0];
    B::each(s, [&](float x, int, int) { return x * this->scale; });
    s[0] = Unit::broadcast_half(term, block.lane, half, s[0]);
  }
};

}  // namespace fa
