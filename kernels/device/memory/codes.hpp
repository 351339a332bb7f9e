// Codes of 8 bits (CodeFormat), unpacked to fp16 on their way into LDS. Every finite code is exact.
//
// Four codes of a word become two words: elements 0 and 2, then elements 1 and 3. Operand B of the product
// has the same order (CodedQuery).
//
// Floating-point codes: a byte in the top half of 16 bits, moved right by `shift` below its sign, is an fp16
// number: exponent and mantissa of e4m3 have fp16's places with an exponent of 4 bits, so the number is the
// code's times 2^-8. Subnormal codes become subnormal fp16, exactly. e5m2 needs no shift: it is the top half
// of fp16. e4m3fnuz is read as e4m3fn, twice its value. Integers: 1024 + 128 + code is the fp16 number 0x6400
// | (code + 128).
//
// Where the matrix unit may take fp16 subnormals as zero, e4m3 is multiplied by 2^8 here (kWhole): its least
// number is then 2^-9. Codes of e5m2 below 2^-14 still count as zero there, as fp16 elements do.
#pragma once

#include "device/arch/device.hpp"
#include "device/call/params.hpp"
#include "device/memory/swizzle.hpp"
#include "device/memory/view.hpp"
#include "device/mma/unit.hpp"

namespace fa {

typedef int16_t i16x2 __attribute__((ext_vector_type(2)));

template <class Codes>
struct Unpacked {
  typedef uint32_t Type __attribute__((ext_vector_type(sizeof(Codes) / 2)));
};

template <bool kWhole>
struct FloatCodes {
  uint32_t shift, kept, factor;  // twice 16 bits each; factor is 1 or 2^8

  template <class Codes>
  FA_DEVICE typename Unpacked<Codes>::Type operator()(Codes codes) const {
    typename Unpacked<Codes>::Type words;
#pragma unroll
    for (unsigned i = 0; i < sizeof(Codes) / 4; ++i) {
      words[i * 2] = pair(codes[i] << 8);
      words[i * 2 + 1] = pair(codes[i]);
    }
    return words;
  }

 private:
  FA_DEVICE uint32_t pair(uint32_t bytes) const {
    const i16x2 moved = __builtin_bit_cast(i16x2, bytes) >> __builtin_bit_cast(i16x2, shift);
    const uint32_t bits = __builtin_bit_cast(uint32_t, moved) & kept;
    if constexpr (!kWhole) return bits;
    return __builtin_bit_cast(uint32_t, __builtin_bit_cast(f16x2, bits) * __builtin_bit_cast(f16x2, factor));
  }
};

// Codes of all formats by the same instructions, where one lane has all columns of a product and few codes
// are unpacked at a time. `lifted` integers are counted from 0 on: a byte is a subnormal fp16 number, so they
// become 2^-9 of their value.
struct AnyCodes {
  uint32_t shift, kept, line;  // line: what to multiply by, then what to add

  FA_DEVICE static AnyCodes of(CodeFormat is) {
    if (is == CodeFormat::int8) return {0x00080008, 0x00ff00ff, 0xb4007800};  // 2^15, -128 * 2^-9
    return is == CodeFormat::e5m2 ? AnyCodes{0, 0xff00ff00, 0x3c00}
                                  : AnyCodes{0x00010001, 0xbf80bf80, 0x5c00};
  }

  template <class Codes>
  FA_DEVICE typename Unpacked<Codes>::Type operator()(Codes codes) const {
    typename Unpacked<Codes>::Type words;
#pragma unroll
    for (unsigned i = 0; i < sizeof(Codes) / 4; ++i) {
      words[i * 2] = pair(codes[i] << 8);
      words[i * 2 + 1] = pair(codes[i]);
    }
    return words;
  }

 private:
  FA_DEVICE uint32_t pair(uint32_t bytes) const {
    const i16x2 moved = __builtin_bit_cast(i16x2, bytes) >> __builtin_bit_cast(i16x2, shift);
    const f16x2 bits = __builtin_bit_cast(f16x2, __builtin_bit_cast(uint32_t, moved) & kept);
    const f16x2 both = __builtin_bit_cast(f16x2, line);
    return __builtin_bit_cast(
        uint32_t, __builtin_elementwise_fma(bits, f16x2{both[0], both[0]}, f16x2{both[1], both[1]}));
  }
};

struct IntegerCodes {
  template <class Codes>
  FA_DEVICE typename Unpacked<Codes>::Type operator()(Codes codes) const {
    constexpr uint32_t kEven = 0x04020400, kOdd = 0x04030401;  // for v_perm: a byte of 0x64 above each code
    typename Unpacked<Codes>::Type words;
#pragma unroll
    for (unsigned i = 0; i < sizeof(Codes) / 4; ++i) {
      const uint32_t above = codes[i] ^ 0x80808080;
      words[i * 2] = less(__builtin_amdgcn_perm(0x64646464, above, kEven));
      words[i * 2 + 1] = less(__builtin_amdgcn_perm(0x64646464, above, kOdd));
    }
    return words;
  }

 private:
  FA_DEVICE static uint32_t less(uint32_t bits) {
    const f16x2 all = {static_cast<_Float16>(1152), static_cast<_Float16>(1152)};
    return __builtin_bit_cast(uint32_t, __builtin_bit_cast(f16x2, bits) - all);
  }
};

// A tile's descales, if each key has one: lanes of a wave have them so a lane gets those of its scores from
// lanes of its own half. `from_lane` swizzles numbers of neighbouring lanes.
template <class Layout, int kKeys>
struct KeyDescales {
  static constexpr int kElements = kKeys / Layout::kM * Layout::kRows;  // keys of a lane's scores
  static constexpr bool kNear = Layout::kColumns > 1;                   // kM neighbours have different keys
  static constexpr bool kLone = fa::kLone<Layout>;
  // Keys in a register, for the lanes that a swizzle reaches.
  static constexpr int kOfHeld = !kNear ? 16 : Layout::kM < 32 ? 32 / Layout::kM : 1;
  static constexpr int kHeld = kElements <= kOfHeld ? 1 : kElements / kOfHeld;

  float held[kHeld];

  // The key of `held[i]`.
  FA_DEVICE static int key(int i, int lane) {
    if constexpr (kNear) {
      constexpr int kLanes = kElements < kOfHeld ? kElements : kOfHeld;
      return Layout::held_begin(lane, kKeys) + Layout::held_step(i * kOfHeld + lane / Layout::kM % kLanes);
    }
    return Layout::held_begin(lane, kKeys) +
           Layout::held_step(i * 16 + lane % (kElements < 16 ? kElements : 16));
  }

  // Of element f of a lane's scores.
  template <int f>
  FA_DEVICE float of() const {
    if constexpr (kOfHeld == 1) return held[f];  // the lane's own
    constexpr int kFrom = f % kOfHeld;
    constexpr int kSwizzle = kNear ? kFrom * Layout::kM << 5 | (Layout::kM - 1) : kFrom << 5 | 0x10;
    const int bits = __builtin_bit_cast(int, held[f / kOfHeld]);
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_swizzle(bits, kSwizzle));
  }

  FA_DEVICE float largest() const {
    float found = __builtin_fabsf(held[0]);
#pragma unroll
    for (int i = 1; i < kHeld; ++i) found = __builtin_fmaxf(found, __builtin_fabsf(held[i]));
    return found;
  }

  // Times `factor`, rounded to fp16: the probability of a row's only key keeps it, although probabilities are
  // truncated to fp16.
  FA_DEVICE KeyDescales factors(float factor) const {
    KeyDescales product;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      product.held[i] = static_cast<float>(static_cast<_Float16>(held[i] * factor));
    }
    return product;
  }

  // Replaces them by anything: a load for some calls only then needs no copy of earlier ones.
  FA_DEVICE void forget() {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) held[i] = anything<float>();
  }

  // A copy, made before later loads.
  FA_DEVICE KeyDescales now() const {
    KeyDescales copy;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) copy.held[i] = here(held[i]);
    return copy;
  }
};

// How a call's codes are read. Wave-uniform, except descales: of the tile in LDS. Conditions are bits of one
// scalar register, tested where they are used.
template <bool kWhole, class Descales>
struct Codes {
  static constexpr int kIntegers = 1, kPerKey = 2, kPerKeyOfValues = 4, kWide = 8, kPaged = 16;

  static constexpr bool kAlike = kWhole && Descales::kLone;  // AnyCodes

  int flags;
  [[maybe_unused]] AnyCodes any;
  Descales of_keys, of_values;

  FA_DEVICE void begin(const CodedParams& p) {
    const bool k = p.per_key != 0 && p.k_descale != nullptr, v = p.per_key != 0 && p.v_descale != nullptr;
    const auto is = static_cast<CodeFormat>(p.format);
    flags =
        uniform((is == CodeFormat::int8 ? kIntegers : 0) | (is == CodeFormat::e5m2 ? kWide : 0) |
                (k ? kPerKey : 0) | (v ? kPerKeyOfValues : 0) | (p.fwd.block_table != nullptr ? kPaged : 0));
    if constexpr (kAlike) {
      const AnyCodes found = AnyCodes::of(is);  // in vector registers: scalar ones are short
      any = {here(found.shift), here(found.kept), here(found.line)};
    }
  }

  // The value of 1 as an unpacked code.
  FA_DEVICE static float unit(int32_t format) {
    const auto is = static_cast<CodeFormat>(format);
    constexpr float kOf = kWhole ? 1 : 256;
    if (kAlike && is == CodeFormat::int8) return 512;
    return is == CodeFormat::e4m3fn ? kOf : is == CodeFormat::e4m3fnuz ? kOf / 2 : 1;
  }

  FA_DEVICE bool paged() const { return has(kPaged); }
  FA_DEVICE bool integers() const { return has(kIntegers); }
  FA_DEVICE FloatCodes<kWhole> floats() const {
    const bool wide = has(kWide);
    return {wide ? 0 : 0x00010001u, wide ? 0xff00ff00 : 0xbf80bf80, wide ? 0x3c003c00u : 0x5c005c00};
  }
  // Calls `action` with what unpacks codes of the call's format.
  template <class Action>
  FA_DEVICE void unpacking(const Action& action) const {
    if constexpr (kAlike) {
      action(any);
    } else if (integers()) {
      action(IntegerCodes{});
    } else {
      action(floats());
    }
  }
  // Call for the words of a tile before they are unpacked.
  template <class Words>
  FA_DEVICE void lift(Words& words) const {
    if constexpr (kAlike) {
      constexpr int kWords = sizeof(Words) / sizeof(uint32_t);
      if (!integers()) return;
#pragma unroll
      for (int i = 0; i < kWords; ++i) reinterpret_cast<uint32_t*>(&words)[i] ^= 0x80808080;
    }
  }
  FA_DEVICE bool per_key(bool of_values) const { return has(of_values ? kPerKeyOfValues : kPerKey); }

  // Queries are converted by CodedQuery.
  FA_DEVICE u32x4 operator()(u32x4 words) const { return words; }
  FA_DEVICE bool exact() const { return true; }

 private:
  FA_DEVICE bool has(int flag) const { return (here_uniform(flags) & flag) != 0; }
};

// A stage of K or V whose elements are codes.
template <class Stage, bool kIsValue, bool kWhole, class Descales>
struct CodedStage : Stage {
  Descales descales;

  FA_DEVICE void store(LdsBytes tile, Codes<kWhole, Descales>& codes, int thread) const {
    if (codes.per_key(kIsValue)) (kIsValue ? codes.of_values : codes.of_keys) = descales.now();
    if (codes.integers()) {
      const IntegerCodes unpack;
      Stage::store(tile, unpack, thread);
    } else {
      const FloatCodes<kWhole> unpack = codes.floats();
      Stage::store(tile, unpack, thread);
    }
  }
};

}  // namespace fa
