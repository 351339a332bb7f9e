// Elements of fp8 on their way to operands of products in fp8 (mma/mfma_fp8.hpp).
#pragma once

#include "device/memory/lds_tile.hpp"
#include "device/memory/query.hpp"
#include "device/memory/stage.hpp"

namespace fa {

// Makes codes those of the matrix unit, e4m3fnuz. Codes of e4m3fn have twice that value, and 0x80, its -0,
// becomes 0. `kept`: bits of a code of 0 that stay.
struct CleanCodes {
  static constexpr uint32_t kMagnitudes = 0x7f7f7f7f;

  uint32_t kept;

  FA_DEVICE void begin(bool is_fnuz) {
    kept = static_cast<uint32_t>(uniform(is_fnuz ? -1 : static_cast<int>(kMagnitudes)));
  }
  template <class Words>
  FA_DEVICE Words operator()(Words words) const {
    const Words bits = here(words & kept);  // or the compiler takes one instruction more
    return (words & (bits + kMagnitudes)) | bits;
  }
  // The sign bit of each code: it is not 0.
  template <class Words>
  FA_DEVICE static Words no_zeros(Words words) {
    return (words & kMagnitudes) + kMagnitudes;
  }
  FA_DEVICE bool exact() const { return true; }
};

template <Fp8>
struct CodesOfFormat {
  using Type = CleanCodes;
};
template <>
struct CodesOfFormat<Fp8::ocp> {  // e4m3fn only
  using Type = Unchanged;
};
template <Fp8 kFormat>
using CodesOf = typename CodesOfFormat<kFormat>::Type;

// As QuerySign, for codes of e4m3fn.
struct ByteSign : QuerySign {
  FA_DEVICE explicit ByteSign(const QuerySign& sign) : QuerySign(sign) { flip |= flip >> 8; }
};

// As ShortSign, for codes of e4m3fnuz.
struct CodeSign {
  float scale;
  const CleanCodes& clean;

  FA_DEVICE bool none() const { return false; }
  template <class T>
  FA_DEVICE T apply(T words) const {
    const QuerySign sign = QuerySign::from_bits(scale);
    const T kept = words & sign.keep;
    return clean(kept ^
                 (CleanCodes::no_zeros(kept) & (sign.flip | sign.flip >> 8)));  // -0 of e4m3fnuz is NaN
  }
};

// As ShortSign, for int8 from -127 on. Zero changes nothing.
struct CountSign {
  float scale;

  FA_DEVICE bool none() const { return here_uniform(__builtin_bit_cast(int, scale)) >= 0; }
  template <class T>
  FA_DEVICE T apply(T words) const {
    return (0x80808080u - (words & 0x7f7f7f7fu)) ^ (~words & 0x80808080u);
  }
};

// As ValueStage, of elements of 8 bits: a thread transposes blocks of 4 keys by 4 elements.
template <class Layout, int kKeys, int kHeadDim, int kThreads, bool kPadded, int kLanes>
struct ByteValueStage {
  using Tile = LdsTile<kHeadDim, kKeys, Layout::kM, kPadded>;
  static constexpr int kBlocks = kHeadDim / 4;
  static constexpr int kPieces = kKeys / 4 * kBlocks;
  static constexpr int kLoads = (kPieces + kThreads - 1) / kThreads;
  static_assert(kKeys / 4 % kLanes == 0, "neighbours have keys of their own");
  // Rows 4 apart are in the same banks, or in those of half a wave: neighbours write them in other orders.
  static constexpr bool kSwaps = Layout::kM == 32;

  u32x4 key[kLoads];  // a word of each of 4 keys

  template <class Source>
  FA_DEVICE void load(const Source& source, int thread) {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const int first = source.offset_of(key_block(index) * 4, column(index) * 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        key[i][j] = source.template read_at<uint32_t>(first + static_cast<int>(j * source.row_bytes));
      }
    });
  }

  template <class Convert>
  FA_DEVICE void store(LdsBytes tile, Convert& convert, int thread) const {
    for_pieces<kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const int block = key_block(index), first = Layout::slot_of_row(column(index) * 4, kHeadDim);
      const int swap = kSwaps ? column(index) % 4 : 0;
      const u32x4 turned = transposed(convert(key[i]), swap);
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        Tile::write(tile, first + (d ^ swap), block / 4, block % 4 * 4, static_cast<uint32_t>(turned[d]));
      }
    });
  }

 private:
  // The 4 keys and the 4 elements of piece `index`.
  FA_DEVICE static int key_block(int index) { return index / kLanes / kBlocks * kLanes + index % kLanes; }
  FA_DEVICE static int column(int index) { return index / kLanes % kBlocks; }

  // Element d is column d ^ swap.
  FA_DEVICE static u32x4 transposed(u32x4 rows, uint32_t swap) {
    const uint32_t pairs = swap & 2 ? 0x02020202 : 0, halves = swap & 1 ? 0x02020202 : 0;
    // For v_perm: bytes of two words.
    const uint32_t low_pairs = 0x05010400 ^ pairs, high_pairs = 0x07030602 ^ pairs;
    const uint32_t low = 0x05040100 ^ halves, high = 0x07060302 ^ halves;
    const uint32_t first = perm(rows[1], rows[0], low_pairs), second = perm(rows[3], rows[2], low_pairs);
    const uint32_t third = perm(rows[1], rows[0], high_pairs), fourth = perm(rows[3], rows[2], high_pairs);
    return {perm(second, first, low), perm(second, first, high), perm(fourth, third, low),
            perm(fourth, third, high)};
  }
  FA_DEVICE static uint32_t perm(uint32_t high, uint32_t low, uint32_t bytes) {
    return __builtin_amdgcn_perm(high, low, bytes);
  }
};

}  // namespace fa
