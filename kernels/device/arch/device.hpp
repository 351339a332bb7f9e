// Device vocabulary: function attributes, vector types, lanes and barriers. Device only. Replaces the HIP
// headers, whose compile time exceeds the kernels'.
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

// A compile-time number.
template <int n>
struct Constant {
  static constexpr int kValue = n;
};

// A wave-uniform value, moved to a scalar register. The compiler then knows it is uniform.
FA_DEVICE int uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }
FA_DEVICE float uniform(float value) {
  return __builtin_bit_cast(float, uniform(__builtin_bit_cast(int, value)));
}

// Hides a value from the optimiser, so results computed from it are not hoisted out of a loop into registers.
// `here` is for values per lane, `here_uniform` for wave-uniform values.
template <class T>
FA_DEVICE T here(T value) {
  asm volatile("" : "+v"(value));
  return value;
}
FA_DEVICE int here_uniform(int value) {
  asm volatile("" : "+s"(value));
  return value;
}

// Waits once for all of these values, instead of at the first use of each.
template <class... Values>
FA_DEVICE void loaded_together(Values&... values) {
  (([](auto& value) { asm volatile("" : "+s"(value)); })(values), ...);
}

// Likewise for pointers. They point to global memory. The compiler loses this fact here.
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

// The lane, computed anew. A rarely used value then occupies no register in between.
template <int kWave>
FA_DEVICE int own_lane() {
  const uint32_t all = here_uniform(-1);
  const uint32_t low = __builtin_amdgcn_mbcnt_lo(all, 0);
  return static_cast<int>(kWave == 64 ? __builtin_amdgcn_mbcnt_hi(all, low) : low);
}

// An undefined value: registers keep their contents, at no instruction.
template <class T>
FA_DEVICE T anything() {
  T value;
  asm volatile("" : "=v"(value));
  return value;
}

// For a wave-uniform value: an integer comparison in scalar registers. Most archs have no scalar fp32
// arithmetic. Opaque, or the compiler turns it back into a comparison of floats.
FA_DEVICE bool is_zero(float value) { return here_uniform(__builtin_bit_cast(int, value)) << 1 == 0; }

// Orders the LDS accesses of all waves of the workgroup. Global loads stay in flight.
FA_DEVICE void workgroup_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// As workgroup_barrier, for archs whose barriers an exception cannot interrupt. On them the compiler would
// wait for all global loads before a barrier.
FA_DEVICE void workgroup_barrier_in_flight() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  asm volatile("s_barrier" ::: "memory");
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// Starts to load 16 bytes per lane, from base + offset, into consecutive places of LDS. The load is hidden
// from the compiler, which would otherwise wait for all such loads before the next transposed read, from any
// place. So callers need wait_for_loads and a barrier before they read the data. M0 cannot be declared as a
// clobber. Nothing else in a kernel uses it.
FA_DEVICE void load_to_lds(const char* base, uint32_t offset, LdsBytes to) {
  asm volatile(
      "s_mov_b32 m0, %2\n\t"
      "s_nop 0\n\t"  // one wait state between writing M0 and using it
      "global_load_lds_dwordx4 %0, %1"
      :
      : "v"(offset), "s"(base), "s"(to)
      : "memory");
}

// Likewise from base + offset + kFrom into to + kTo.
template <int kFrom, int kTo>
FA_DEVICE void load_to_lds(const char* base, uint32_t offset, LdsBytes to) {
  // The instruction adds its constant to both places.
  asm volatile(
      "s_add_i32 m0, %2, %3\n\t"
      "s_nop 0\n\t"
      "global_load_lds_dwordx4 %0, %1 offset:%4"
      :
      : "v"(offset), "s"(base), "s"(to), "n"(kTo - kFrom), "n"(kFrom)
      : "memory", "scc");
}

// Waits for the wave's loads only: vmcnt(0) of gfx9.
FA_DEVICE void wait_for_loads() { __builtin_amdgcn_s_waitcnt(0x0f70); }

// Orders the LDS accesses of the lanes of one wave.
FA_DEVICE void wave_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront", "local");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront", "local");
}

// to[index] += value, in GPU memory, atomic and in any order.
FA_DEVICE void add_float(float* to, int index, float value) {
  using Global = __attribute__((address_space(1))) float*;
  [[clang::atomic(no_remote_memory, no_fine_grained_memory, ignore_denormal_mode)]] {
    __scoped_atomic_fetch_add((Global)to + index, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  }
}

template <int kWave>
struct LaneMaskOf {
  using Type = uint32_t;
};
template <>
struct LaneMaskOf<64> {
  using Type = uint64_t;
};
template <int kWave>
using LaneMask = typename LaneMaskOf<kWave>::Type;

// One bit per lane: the condition.
template <int kWave>
FA_DEVICE LaneMask<kWave> lanes_with(bool condition) {
  if constexpr (kWave == 64) {
    return __builtin_amdgcn_ballot_w64(condition);
  } else {
    return __builtin_amdgcn_ballot_w32(condition);
  }
}

// Non-zero if a bit is set.
FA_DEVICE int any_bit(uint32_t lanes) { return static_cast<int>(lanes); }
FA_DEVICE int any_bit(uint64_t lanes) { return static_cast<int>(lanes | lanes >> 32); }

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

// Reduces over the lanes whose numbers differ only in bits of kPeers. Each of them gets the result.
template <int kPeers, class Combine>
FA_DEVICE float across_lanes(float value, int lane, Combine combine) {
  if constexpr (kPeers == 0) {
    return value;
  } else {
    constexpr int kBit = kPeers & -kPeers;
    return across_lanes<kPeers ^ kBit>(combine(value, lane_xor<kBit>(value, lane)), lane, combine);
  }
}

// Of gfx9: likewise over all 64 lanes, of four values at once, without the LDS. Only the last lane has all
// steps, so the results are uniform. Columns are apart, so none waits for the step before: DPP reads what was
// written at least three instructions ago.
#define FA_OF_FOUR(op, lanes)                                                                     \
  op " %0, %0, %0 " lanes "\n\t" op " %1, %1, %1 " lanes "\n\t" op " %2, %2, %2 " lanes "\n\t" op \
     " %3, %3, %3 " lanes "\n\t"
#define FA_OF_WAVE(op, values)                                                         \
  asm("s_nop 1\n\t" FA_OF_FOUR(op, "quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf")   \
          FA_OF_FOUR(op, "quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf")             \
              FA_OF_FOUR(op, "row_half_mirror row_mask:0xf bank_mask:0xf")             \
                  FA_OF_FOUR(op, "row_mirror row_mask:0xf bank_mask:0xf")              \
                      FA_OF_FOUR(op, "row_bcast:15 row_mask:0xf bank_mask:0xf")        \
                          FA_OF_FOUR(op, "row_bcast:31 row_mask:0xf bank_mask:0xf") "" \
      : "+v"(values[0]), "+v"(values[1]), "+v"(values[2]), "+v"(values[3]))

FA_DEVICE void spread_last_lane(float (&values)[4]) {
#pragma unroll
  for (float& value : values) {
    value = __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, value), 63));
  }
}
FA_DEVICE void highest_of_wave(float (&values)[4]) {
  FA_OF_WAVE("v_max_f32_dpp", values);
  spread_last_lane(values);
}
FA_DEVICE void sum_of_wave(float (&values)[4]) {
  FA_OF_WAVE("v_add_f32_dpp", values);
  spread_last_lane(values);
}

}  // namespace fa
