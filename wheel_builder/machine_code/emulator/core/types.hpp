// Basic types, bit casts and the ISA's number formats besides IEEE binary32/64.
#pragma once
#include <immintrin.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace emu {
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using f32 = float;
using f64 = double;

constexpr int kLanes = 64;  // storage per register. A wave32 uses the first 32

template <class To, class From>
inline To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// One problem with the program or the launch, in words.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline f32 half_to_float(u32 h) { return _cvtsh_ss(static_cast<u16>(h)); }
inline u32 float_to_half(f32 f) { return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }
inline u32 float_to_half_rtz(f32 f) { return _cvtss_sh(f, _MM_FROUND_TO_ZERO); }
inline u32 reverse_bits(u32 x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}

inline f32 bf16_to_float(u32 h) { return bits<f32>(h << 16); }
inline u32 float_to_bf16(f32 f) {
  u32 u = bits<u32>(f);
  if (f != f) return (u >> 16) | 0x40;
  return (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}

// Lane arrays of halves (16 bits of each element, optionally the upper ones) to floats and back. n is a
// multiple of 8.
inline void halves_to_floats(const u32* h, f32* f, int n, bool upper = false) {
  __m128i shift = _mm_cvtsi32_si128(upper ? 16 : 0);
  for (int i = 0; i < n; i += 8) {
    __m256i x = _mm256_srl_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(h + i)), shift);
    x = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
    __m128i p = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm256_storeu_ps(f + i, _mm256_cvtph_ps(p));
  }
}
inline void floats_to_halves(const f32* f, u32* h, int n) {
  for (int i = 0; i < n; i += 8) {
    __m128i p = _mm256_cvtps_ph(_mm256_loadu_ps(f + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(h + i), _mm256_cvtepu16_epi32(p));
  }
}

// a*b+c of three halves as float bits, ready for one rounding to the correctly rounded half: the product is
// exact in float, and the sum is rounded to odd.
inline f32 half_fma_odd(f32 a, f32 b, f32 c) {
  f32 p = a * b, s = p + c;
  f32 bb = s - p, err = (p - (s - bb)) + (c - bb);
  u32 u = bits<u32>(s);
  bool finite = (u & 0x7f800000u) != 0x7f800000u;
  bool fix = finite && err != 0.0f && !(u & 1);
  bool grow = (err > 0.0f) == (s > 0.0f);
  u32 v = grow ? u + 1 : u - 1;
  return bits<f32>(fix ? v : u);
}
}  // namespace emu
