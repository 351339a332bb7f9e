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

// A number of the program.
template <int n>
struct Constant {
  static constexpr int kValue = n;
};

// A value that is the same in all lanes, moved to a scalar register, where the compiler knows that.
FA_DEVICE int uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }
FA_DEVICE float uniform(float value) {
  return __builtin_bit_cast(float, uniform(__builtin_bit_cast(int, value)));
}

// Hides a value from the optimiser, so that what is computed from it is not hoisted out of a loop and kept in
// registers.  `here` is for values that differ between lanes, `here_uniform` for those that do not.
template <class T>
FA_DEVICE T here(T value) {
  asm volatile("" : "+v"(value));
  return value;
}
FA_DEVICE int here_uniform(int value) {
  asm volatile("" : "+s"(value));
  return value;
}

// All of these are there from here on: waited for once, and not where each is used first.
template <class... Values>
FA_DEVICE void loaded_together(Values&... values) {
  (([](auto& value) { asm volatile("" : "+s"(value)); })(values), ...);
}

// The same for pointers.  What is read through them is in global memory, which the compiler no longer knows
// afterwards.
template <class... Values>
FA_DEVICE void pointers_together(Values*&... pointers) {
  (([](auto*& pointer) {
     using Global = __attribute__((address_space(1))) decltype(*pointer + 0)*;
     uint64_t bits = reinterpret_cast<uint64_t>(pointer);
     loaded_together(bits);
     pointer = (decltype(pointer + 0))(Global)bits;
   })(pointers),
   ...);
}

// The lane, found anew: what is needed seldom takes no register meanwhile.
template <int kWave>
FA_DEVICE int own_lane() {
  const uint32_t all = here_uniform(-1);
  const uint32_t low = __builtin_amdgcn_mbcnt_lo(all, 0);
  return static_cast<int>(kWave == 64 ? __builtin_amdgcn_mbcnt_hi(all, low) : low);
}

// An undefined value: registers with whatever they hold, at the cost of no instruction.
template <class T>
FA_DEVICE T anything() {
  T value;
  asm volatile("" : "=v"(value));
  return value;
}

// For a value that is the same in all lanes: an integer comparison in scalar registers, which have no fp32
// arithmetic on most archs.  Opaque, or the compiler turns it back into a comparison of floats.
FA_DEVICE bool is_zero(float value) { return here_uniform(__builtin_bit_cast(int, value)) << 1 == 0; }

// Orders the LDS accesses of all waves of the workgroup; leaves global loads in flight.
FA_DEVICE void workgroup_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// The same where the compiler would wait for all global loads before a barrier, as it does for archs whose
// barriers an exception cannot interrupt.
FA_DEVICE void workgroup_barrier_in_flight() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  asm volatile("s_barrier" ::: "memory");
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// Begins to load 16 bytes of each lane, from base + offset, into consecutive places of LDS.  The compiler
// knows nothing of it: it would wait for all such loads before the next read that turns what it reads,
// wherever that reads.  So wait_for_loads and a barrier have to come before what is loaded is read.  M0 is no
// register that may be named as overwritten; nothing else of a kernel uses it.
FA_DEVICE void load_to_lds(const char* base, uint32_t offset, LdsBytes to) {
  asm volatile(
      "s_mov_b32 m0, %2\n\t"
      "s_nop 0\n\t"  // a wait state between M0 and its use
      "global_load_lds_dwordx4 %0, %1"
      :
      : "v"(offset), "s"(base), "s"(to)
      : "memory");
}

// Waits until the wave's loads are done, and for nothing else: vmcnt(0) of gfx9.
FA_DEVICE void wait_for_loads() { __builtin_amdgcn_s_waitcnt(0x0f70); }

// Orders the LDS accesses of one wave's lanes.
FA_DEVICE void wave_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront", "local");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront", "local");
}

// to[index] += value, in memory of the GPU itself; whatever comes first.
FA_DEVICE void add_float(float* to, int index, float value) {
  using Global = __attribute__((address_space(1))) float*;
  [[clang::atomic(no_remote_memory, no_fine_grained_memory, ignore_denormal_mode)]] {
    __scoped_atomic_fetch_add((Global)to + index, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  }
}

// A bit for each lane with the condition.
template <int kWave>
FA_DEVICE uint64_t lanes_with(bool condition) {
  if constexpr (kWave == 64) {
    return __builtin_amdgcn_ballot_w64(condition);
  } else {
    return __builtin_amdgcn_ballot_w32(condition);
  }
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

// Combines the values of the lanes whose numbers differ only in bits of kPeers; each of them gets the result.
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
