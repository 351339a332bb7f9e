// The device vocabulary: function attributes, vector types, lanes and barriers.  Device only; takes
// the place of the HIP headers, which cost more to compile than the kernels.
#pragma once

#include <stdint.h>

#define FA_DEVICE __attribute__((device, always_inline)) inline

namespace fa {

typedef uint32_t u32x2 __attribute__((ext_vector_type(2)));
typedef uint32_t u32x4 __attribute__((ext_vector_type(4)));
typedef uint32_t u32x8 __attribute__((ext_vector_type(8)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef float f32x16 __attribute__((ext_vector_type(16)));

using LdsBytes = __attribute__((address_space(3))) char*;

// A value that is the same in all lanes, moved to where the compiler knows it.
FA_DEVICE int uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }
FA_DEVICE float uniform(float value) {
  return __builtin_bit_cast(float, uniform(__builtin_bit_cast(int, value)));
}

// A value whose users stay where they are: what follows from it is not computed before the loop and kept in
// registers through it.  `here` is for values that differ between lanes, `here_uniform` for those that do
// not.
template <class T>
FA_DEVICE T here(T value) {
  asm volatile("" : "+v"(value));
  return value;
}
FA_DEVICE int here_uniform(int value) {
  asm volatile("" : "+s"(value));
  return value;
}

// Registers with whatever they hold: a value that is not read, and that no copies are made for.
template <class T>
FA_DEVICE T anything() {
  T value;
  asm volatile("" : "=v"(value));
  return value;
}

// Of a value that is the same in all lanes; in scalar registers, which have no fp32 arithmetic everywhere.
// Opaque, because the compiler would make a comparison of numbers of it.
FA_DEVICE bool is_zero(float value) { return here_uniform(__builtin_bit_cast(int, value)) << 1 == 0; }

// Orders the LDS accesses of all waves of the workgroup; leaves global loads in flight.
FA_DEVICE void workgroup_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// Orders the LDS accesses of one wave's lanes.
FA_DEVICE void wave_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront", "local");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront", "local");
}

template <int kWave>
FA_DEVICE bool any_lane(bool condition) {
  if constexpr (kWave == 64) {
    return __builtin_amdgcn_ballot_w64(condition) != 0;
  } else {
    return __builtin_amdgcn_ballot_w32(condition) != 0;
  }
}

// The value of lane `own ^ kMask`.
template <int kMask>
FA_DEVICE float lane_xor(float value, int lane) {
  const int bits = __builtin_bit_cast(int, value);
  if constexpr (kMask < 32) {
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_swizzle(bits, kMask << 10 | 0x1f));
  } else {
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute((lane ^ kMask) * 4, bits));
  }
}

// Combines the values of all lanes whose numbers differ in bits of kPeers only; each of them gets it.
template <int kPeers, class Combine>
FA_DEVICE float across_lanes(float value, int lane, Combine combine) {
  if constexpr (kPeers == 0) {
    return value;
  } else {
    constexpr int kBit = kPeers & -kPeers;
    return across_lanes<kPeers ^ kBit>(combine(value, lane_xor<kBit>(value, lane)), lane, combine);
  }
}

}  // namespace fa
