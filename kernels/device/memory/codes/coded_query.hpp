// Queries beside codes (memory/codes.hpp).
#pragma once

#include "device/memory/codes.hpp"

namespace fa {

// Queries of fp16 or bf16 as operand B of a product with codes: fp16, in the order of unpacked codes.
//
// bf16 is multiplied by a power of two, so the step's largest finite magnitude is in [2^14, 2^15) if it was
// at least 2^-63. This is exact for elements from 2^-31 of it on (2^-21 where subnormals count as zero).
// Smaller ones lose less than 2^-38 of it (2^-28), so every score errs by less than this share of the largest
// one possible in the step's rows. If all are below 2^-63, they lose less than 2^-71 (2^-61).
template <DType kDType>
struct QueryPower {
  float power = 1, inverse = 1;

  // Magnitudes plus 0x80: those of inf and NaN are negative.
  struct Largest {
    i16x2 most = {0x80, 0x80};

    FA_DEVICE void add(u32x4 words) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const uint32_t pair = words[word] & 0x7fff7fff;
        most = __builtin_elementwise_max(most, __builtin_bit_cast(i16x2, pair) + static_cast<int16_t>(0x80));
      }
    }
    template <int kWave>
    FA_DEVICE float of_wave(int lane) const {
      const float own = static_cast<float>(most.x > most.y ? most.x : most.y);
      return across_lanes<kWave - 1>(own, lane, [](float a, float b) { return __builtin_fmaxf(a, b); });
    }
  };

  FA_DEVICE void fit(float largest) {
    const int exponent = (uniform(static_cast<int>(largest)) >> 7) - 1;
    // 2^47 if all elements are next to 0: with a higher power and a small descale of K, the softmax's
    // reciprocal of the scale was inf.
    const int biased = exponent < 64 ? 174 : 268 - exponent;
    power = __builtin_bit_cast(float, biased << 23);
    inverse = __builtin_bit_cast(float, (254 - biased) << 23);
  }

  template <class T>
  FA_DEVICE T converted(T words) const {
    if constexpr (kDType == DType::bf16) {
#pragma unroll
      for (unsigned i = 0; i < sizeof(T) / 4; ++i) {
        const uint32_t pair = words[i];
        words[i] = __builtin_bit_cast(
            uint32_t, __builtin_amdgcn_cvt_pkrtz(__builtin_bit_cast(float, pair << 16) * power,
                                                 __builtin_bit_cast(float, pair & 0xffff0000) * power));
      }
    }
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 4; i += 2) {
      const uint32_t first = words[i], second = words[i + 1];
      words[i] = __builtin_amdgcn_perm(second, first, 0x05040100);
      words[i + 1] = __builtin_amdgcn_perm(second, first, 0x07060302);
    }
    return words;
  }
};

// kPairs: steps 2i and 2i + 1 have the two halves of a lane's 16 neighbours (memory/own_codes.hpp).
template <class Unit, DType kDType, int kHeadDim, bool kPairs>
struct CodedQuery : QueryPower<kDType> {
  static constexpr int kSharers = Unit::kWave / Unit::kN, kUnits = kHeadDim / 8;  // lanes that read a row
  static_assert(kSharers == 2 || kSharers == 4 || !kPairs);
  static constexpr int kLanes = (kSharers - 1) * 16,
                       kStep = kSharers * 16;  // bits of a byte's place in a row
  static constexpr int kShift = kSharers / 2;

  PackedView view;

  FA_DEVICE CodedQuery(const PackedView& view, int lane) : view(view) {
    if constexpr (kDType == DType::bf16) {
      typename QueryPower<kDType>::Largest largest;
      // The two loops of a kernel without matrix instructions come close to 64 KiB.
      constexpr int kTogether = Unit::kColumns > 1 ? 2 : 8;
#pragma unroll kTogether
      for (int i = 0; i < (kUnits + kSharers - 1) / kSharers; ++i) {
        const int unit = i * kSharers + lane / Unit::kN, own = kUnits < kSharers ? unit % kUnits : unit;
        largest.add(view.template read<u32x4>(lane % Unit::kN, own * 16));
      }
      this->fit(largest.template of_wave<Unit::kWave>(lane));
    }
  }

  template <class T>
  FA_DEVICE T read(int row, int byte) const {
    return this->converted(raw<T>(view, row, byte));
  }

  template <class T>
  FA_DEVICE static T raw(const PackedView& view, int row, int byte) {
    const int in_pair = (byte & ~(kLanes | kStep)) | (byte & kLanes) << 1 | (byte & kStep) >> kShift;
    return view.template read<T>(row, kPairs ? in_pair : byte);
  }
};

}  // namespace fa
