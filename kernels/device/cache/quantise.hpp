// Codes of q, k and v for products of 8 bits. q and k are rotated, which their products do not see: elements
// change signs (kSigns), then a Hadamard matrix shares a large one among all. Then a code of int8 for each
// element, with a scale for each row of q, and for kKeysOfScale rows of k. v: e4m3fn, with a scale for each
// head, where the ISA has products of fp8. Elsewhere v stays as it is.
#pragma once

#include "device/cache/append.hpp"

namespace fa {

// A workgroup has kQuantisedRows rows of a head. A thread has 16 neighbours of a row at a time.
template <DType kDType, bool kOfValues = traits(kCurrentGfx).fp8 != Fp8::none>
struct Quantise {
  using Element = typename ElementOf<kDType>::Type;
  using Lds = __attribute__((address_space(3))) uint32_t*;
  typedef Element Elements __attribute__((ext_vector_type(16), aligned(16)));
  typedef uint32_t Words __attribute__((ext_vector_type(4)));
  static constexpr int kWidth = 16, kWave = traits(kCurrentGfx).wave, kWaves = kQuantiseThreads / kWave;
  static constexpr float kInt8 = 127;
  static constexpr float kE4m3 = traits(kCurrentGfx).fp8 == Fp8::fnuz ? 240 : 448;  // of the unit's codes
  static constexpr uint32_t kMagnitude = 0x7fffffff;
  // A bit for each element whose sign changes: digits of pi. Without it, a row of equal elements would become
  // one element.
  static constexpr uint64_t kSigns[] = {0x243f6a8885a308d3, 0x13198a2e03707344};

  const QuantiseParams& params;
  const QuantiseTensor& tensor;
  const int batch, head, part;  // part: kQuantisedRows rows
  const int thread, unit, row;  // of 16 elements in a row, and of a row among those at once
  const int at_once, units;
  const Lds lds;

  FA_DEVICE static void run(const QuantiseParams& params, Lds lds) {
    // q, k and v of a sequence are neighbours. v alone has a first phase.
    constexpr unsigned kTensors = kOfValues ? 3 : 2;
    const unsigned z = __builtin_amdgcn_workgroup_id_z();
    const bool finds = kOfValues && params.phase == 0;
    const unsigned which = finds ? 2 : z % kTensors;
    const QuantiseTensor& tensor = params.tensors[which];
    const int part = __builtin_amdgcn_workgroup_id_x(), head = __builtin_amdgcn_workgroup_id_y();
    if (head >= tensor.heads || part * kQuantisedRows >= tensor.rows) return;
    const int thread = __builtin_amdgcn_workitem_id_x();
    const int shift =
        !traits(kCurrentGfx).int8_d64 || params.head_dim == 128 ? 3 : 2;  // of the threads of a row
    const Quantise q{params,
                     tensor,
                     static_cast<int>(finds ? z : z / kTensors),
                     head,
                     part,
                     thread,
                     thread & ((1 << shift) - 1),
                     thread >> shift,
                     kQuantiseThreads >> shift,
                     1 << shift,
                     lds};
    if constexpr (kOfValues) {
      if (finds) return q.find_largest();
      if (which == 2) return q.values();
    }
    q.rotated(which == 1);
  }

 private:
  FA_DEVICE int first_row() const { return part * kQuantisedRows; }
  FA_DEVICE int parts() const { return (tensor.rows + kQuantisedRows - 1) / kQuantisedRows; }
  FA_DEVICE uint32_t of_head() const { return batch * tensor.heads + head; }

  // Zeros beyond the last row.
  FA_DEVICE Elements read(int at) const {
    Elements found = {};
    if (at < tensor.rows) {
      found = *reinterpret_cast<const Elements*>(static_cast<const Element*>(tensor.from) +
                                                 batch * tensor.from_batch + at * tensor.from_row +
                                                 head * tensor.from_head + unit * kWidth);
    }
    return found;
  }
  // Codes are dense: (batch, rows, heads, head_dim).
  FA_DEVICE void write(int at, Words codes) const {
    if (at >= tensor.rows) return;
    const int64_t place = (static_cast<int64_t>(batch) * tensor.rows + at) * tensor.heads + head;
    *reinterpret_cast<Words*>(static_cast<char*>(tensor.codes) + place * params.head_dim + unit * kWidth) =
        codes;
  }

  // The largest of all lanes, as bits: a NaN is larger than any number.
  template <int kPeers>
  FA_DEVICE uint32_t largest_of(uint32_t bits) const {
    return __builtin_bit_cast(
        uint32_t, across_lanes<kPeers>(__builtin_bit_cast(float, bits), thread % kWave, [](float a, float b) {
          const uint32_t x = __builtin_bit_cast(uint32_t, a);
          const uint32_t y = __builtin_bit_cast(uint32_t, b);
          return __builtin_bit_cast(float, x > y ? x : y);
        }));
  }
  // Of the waves from `first` on.
  FA_DEVICE uint32_t largest_of_waves(uint32_t bits, int first, int count) const {
    const uint32_t own = largest_of<kWave - 1>(bits);
    workgroup_barrier();
    lds[thread / kWave] = own;
    workgroup_barrier();
    uint32_t most = 0;
#pragma clang loop unroll(disable) vectorize(disable)
    for (int i = first; i < first + count; ++i) most = most > lds[i] ? most : lds[i];
    return most;
  }

  // The largest magnitude of v's numbers in these rows. Infinity counts as the type's largest.
  FA_DEVICE void find_largest() const {
    constexpr uint32_t kFinite = kDType == DType::fp16 ? 0x477fe000 : 0x7f7f0000;
    uint32_t most = 0;
#pragma unroll 1
    for (int i = 0; i < kQuantisedRows; i += at_once) {
      const Elements x = read(first_row() + i + row);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float number = static_cast<float>(x[j]);
        const uint32_t bits = __builtin_bit_cast(uint32_t, number) & kMagnitude;
        const uint32_t finite = number != number ? 0 : bits < kFinite ? bits : kFinite;
        const uint32_t counted = here(finite);  // v_minmax_u32 would be of few archs
        most = most > counted ? most : counted;
      }
    }
    const uint32_t all = largest_of_waves(most, 0, kWaves);
    if (thread == 0) params.largest[of_head() * parts() + part] = __builtin_bit_cast(float, all);
  }

  FA_DEVICE void values() const {
    uint32_t most = 0;
#pragma clang loop unroll(disable) vectorize(disable)
    for (int i = thread; i < parts(); i += kQuantiseThreads) {
      const uint32_t one = __builtin_bit_cast(uint32_t, params.largest[of_head() * parts() + i]);
      most = most > one ? most : one;
    }
    const float largest = at_least(largest_of_waves(most, 0, kWaves));
    const float factor = kE4m3 / largest;
    if (part == 0 && thread == 0) tensor.scales[of_head()] = largest / kE4m3;
#pragma unroll 1
    for (int i = 0; i < kQuantisedRows && first_row() + i < tensor.rows; i += at_once) {
      const int at = first_row() + i + row;
      const Elements x = read(at);
      Words codes;
#pragma unroll
      for (int j = 0; j < kWidth; j += 4) {
        const auto number = [&](int n) { return static_cast<float>(x[j + n]) * factor; };
        const int low = __builtin_amdgcn_cvt_pk_fp8_f32(number(0), number(1), 0, false);
        codes[j / 4] = __builtin_amdgcn_cvt_pk_fp8_f32(number(2), number(3), low, true);
      }
      write(at, codes);
    }
  }

  FA_DEVICE void rotated(bool of_keys) const {
    const float unit_of_rotation = units == 8 ? 0x1.6a09e6p-4f : 0x1p-3f;  // head_dim ** -0.5
    const uint64_t half = unit < 4 ? kSigns[0] : kSigns[1];
    const uint32_t signs = static_cast<uint32_t>(half >> unit % 4 * kWidth);
    const int rows = (tensor.rows + 2 * kKeysOfScale - 1) / (2 * kKeysOfScale) * (2 * kKeysOfScale);
#pragma unroll 1
    for (int i = 0; i < kQuantisedRows && first_row() + i < rows; i += at_once) {
      const int at = first_row() + i + row;
      const Elements given = read(at);
      float x[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, static_cast<float>(given[j]));
        x[j] = __builtin_bit_cast(float, bits ^ (signs << (31 - j) & ~kMagnitude));
      }
      rotate(x);
      uint32_t most = 0;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, x[j]) & kMagnitude;
        most = most > bits ? most : bits;
      }
      if (of_keys) {
        const int waves = kKeysOfScale * units / kWave;
        most = largest_of_waves(most, thread / kWave / waves * waves, waves);
      } else {
        most = largest_of<3>(most);
        if (units == 8) most = largest_of<4>(most);
      }
      const float largest = at_least(most), factor = kInt8 / largest;
      const float scale = largest / kInt8 * unit_of_rotation;
      if (of_keys) {
        const int blocks = rows / kKeysOfScale;
        if (unit == 0 && row % kKeysOfScale == 0 && at < rows) {
          tensor.scales[of_head() * blocks + at / kKeysOfScale] = scale;
        }
      } else if (unit == 0 && at < tensor.rows) {
        tensor.scales[static_cast<int64_t>(of_head()) * tensor.rows + at] = scale;
      }
      write(at, codes_of(x, factor));
    }
  }

  FA_DEVICE static float at_least(uint32_t bits) {
    constexpr uint32_t kLeast = 0x0d800000;  // 2^-100
    return __builtin_bit_cast(float, bits > kLeast ? bits : kLeast);
  }

  // Sums and differences of elements 1, 2, 4, ... apart.
  FA_DEVICE void rotate(float (&x)[kWidth]) const {
#pragma unroll
    for (int apart = 1; apart < kWidth; apart *= 2) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if ((j & apart) != 0) continue;
        const float a = x[j], b = x[j + apart];
        x[j] = a + b, x[j + apart] = a - b;
      }
    }
    exchange<1>(x);
    exchange<2>(x);
    if (units == 8) exchange<4>(x);
  }
  template <int kApart>
  FA_DEVICE void exchange(float (&x)[kWidth]) const {
    const float sign = (unit & kApart) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      x[j] = __builtin_fmaf(x[j], sign, lane_xor<kApart>(x[j], thread % kWave));
  }

  FA_DEVICE static Words codes_of(const float (&x)[kWidth], float factor) {
    constexpr float kInteger = 12582912;  // 1.5 * 2^23: the low byte of the sum is the integer
    Words codes;
#pragma unroll
    for (int j = 0; j < kWidth; j += 4) {
      const auto byte = [&](int n) {
        return __builtin_bit_cast(uint32_t, __builtin_fmaf(x[j + n], factor, kInteger));
      };
      const uint32_t low = __builtin_amdgcn_perm(byte(1), byte(0), 0x0c0c0400);
      const uint32_t high = __builtin_amdgcn_perm(byte(3), byte(2), 0x04000c0c);
      codes[j / 4] = low | high;
    }
    return codes;
  }
};

// Defines the kernel `name`.
#define FA_QUANTISE(name, dtype)                                                                \
  extern "C" __attribute__((global))                                                            \
  __attribute__((amdgpu_flat_work_group_size(fa::kQuantiseThreads, fa::kQuantiseThreads))) void \
  name(const fa::QuantiseParams params) {                                                       \
    __attribute__((shared)) static uint32_t lds[fa::Quantise<dtype>::kWaves];                   \
    fa::Quantise<dtype>::run(params, (fa::Quantise<dtype>::Lds)lds);                            \
  }

}  // namespace fa
