// Codes of K and V (memory/codes.hpp) from global memory into registers of the wave that multiplies them,
// and there into operands. No other wave reads them, so nothing passes through LDS.
#pragma once

#include "device/arch/device.hpp"
#include "device/mma/unit.hpp"

namespace fa {

typedef uint32_t u32x1 __attribute__((ext_vector_type(1)));

// K as operands A of S^T. A lane has all steps' parts of its row, 16 codes in one load. kPairs: these are
// two of its runs, which Q must have in the same order (CodedQuery). kPlaced: places of rows stay in
// registers, instead of being found anew for each tile.
template <class Unit, int kKeys, int kHeadDim, bool kPlaced>
struct OwnKeys {
  struct Tile {
    static constexpr int kBytes = 0;  // of LDS
  };
  static constexpr int kRuns = 16 / Unit::kRun;
  static constexpr bool kPairs = kRuns == 2;
  static constexpr int kSteps = kKeys / Unit::kM, kLoads = kHeadDim / Unit::kK / kRuns;

  u32x4 codes[kSteps][kLoads];

  template <class Source>
  FA_DEVICE void load(const Source& source, int thread) {
    const int lane = static_cast<unsigned>(thread) % Unit::kWave;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int own = Unit::row_of_slot(step * Unit::kM + Unit::a_row(lane), kKeys);
      const int row = kPlaced ? own : here(own);
      const typename Source::Group group = source.group(row);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int byte = (i * Unit::kK + Unit::run_begin(lane)) * kRuns;
        codes[step][i] = source.template read<u32x4>(group, row, byte);
      }
    }
  }

  // A copy in other registers, made before later loads.
  FA_DEVICE OwnKeys moved() const {
    OwnKeys copy;
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      const int step = kLone<Unit> ? kSteps - 1 - n : n;
#pragma unroll
      for (int m = 0; m < kLoads * 4; ++m) {
        const int i = kLone<Unit> ? kLoads * 4 - 1 - m : m;
        uint32_t word;
        asm volatile("v_mov_b32 %0, %1" : "=v"(word) : "v"(codes[step][i / 4][i % 4]));
        copy.codes[step][i / 4][i % 4] = word;
      }
    }
    return copy;
  }

  struct Operands {
    typename Unit::A of[kLoads * kRuns][kSteps];

    // S^T += K * Q^T.
    template <class Query>
    FA_DEVICE void multiply(typename Unit::C* s, const Query& query) const {
#pragma unroll
      for (int i = 0; i < kLoads * kRuns; ++i) {
        const typename Unit::B q = query.operand(i);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if (i == 0) {
            Unit::multiply_first(s[step], of[i][step], q);
          } else {
            Unit::multiply(s[step], of[i][step], q);
          }
        }
      }
    }
  };

  // S^T += K * Q^T, a load at a time: the products are in no branch by format.
  template <class Codes, class Query>
  FA_DEVICE void multiply(const Codes& how, typename Unit::C* s, const Query& query) const {
    constexpr bool kAhead = kLone<Unit>;  // unpacking hides the reads of Q, at the cost of registers
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      [[maybe_unused]] typename Unit::B ahead[kRuns];
      if constexpr (kAhead) {
#pragma unroll
        for (int run = 0; run < kRuns; ++run) ahead[run] = query.operand(i * kRuns + run);
      }
      typename Unit::A of[kRuns][kSteps];
      how.unpacking([&](const auto& unpack) {
#pragma unroll
        for (int run = 0; run < kRuns; ++run) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) of[run][step] = operand(unpack, codes[step][i], run);
        }
      });
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        const typename Unit::B q = kAhead ? ahead[run] : query.operand(i * kRuns + run);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if (i + run == 0) {
            Unit::multiply_first(s[step], of[run][step], q);
          } else {
            Unit::multiply(s[step], of[run][step], q);
          }
        }
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) Unit::pin(s[step]);  // or operands stay for later products
    }
  }

  template <class Unpack>
  FA_DEVICE void unpack(const Unpack& unpack, Operands& k) const {
#pragma unroll
    for (int i = 0; i < kLoads * kRuns; ++i) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        k.of[i][step] = operand(unpack, codes[step][i / kRuns], i % kRuns);
      }
    }
  }

 private:
  template <class Unpack>
  FA_DEVICE static typename Unit::A operand(const Unpack& unpack, u32x4 loaded, int run) {
    if constexpr (kPairs) {
      return __builtin_bit_cast(typename Unit::A, unpack(u32x2{loaded[run * 2], loaded[run * 2 + 1]}));
    } else {
      return __builtin_bit_cast(typename Unit::A, unpack(loaded));
    }
  }
};

// V as operands A of O^T, which `turned` and `unpack` make. A lane loads kWidth neighbouring codes of each of
// its keys: row r of step s of O^T is element r * kWidth + s of head_dim.
template <class UnitOfKeys, int kKeys, int kHeadDim, bool kPlaced>
struct OwnValues {
  using Unit = ValuesOf<UnitOfKeys>;
  struct Tile {
    static constexpr int kBytes = 0;
  };
  static constexpr int kSteps = kKeys / Unit::kK, kWidth = kHeadDim / Unit::kM;
  static_assert(kWidth == 2 || kWidth == 4 || kWidth == 8, "one load a key");
  using Piece = Choice<kWidth == 8, u32x2, Choice<kWidth == 4, uint32_t, uint16_t>>;

  Piece key[kSteps][Unit::kRun];

  template <class Source>
  FA_DEVICE void load(const Source& source, int thread) {
    const int lane = static_cast<unsigned>(thread) % Unit::kWave;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int own = i * Unit::kK + Unit::run_begin(lane), row = kPlaced ? own : here(own);
      const typename Source::Group group = source.group(row);
#pragma unroll
      for (int j = 0; j < Unit::kRun; ++j) {
        key[i][j] = source.template read<Piece>(group, row + j, Unit::a_row(lane) * kWidth);
      }
    }
  }

  struct Operands {
    typename Unit::A of[kSteps][kWidth];

    // O^T += V^T * P^T.
    template <class P>
    FA_DEVICE void multiply(typename Unit::C* o, const P& p) const {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const typename Unit::B b = p.operand(i);
#pragma unroll
        for (int step = 0; step < kWidth; ++step) Unit::multiply(o[step], of[i][step], b);
      }
    }
  };

  // Two elements of two keys in a word: those of the first key, then those of the second.
  struct Turned {
    uint32_t of[kSteps][Unit::kRun / 2][kWidth / 2];

    template <class Unpack>
    FA_DEVICE void unpack(const Unpack& unpack, Operands& v) const {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
#pragma unroll
        for (int pair = 0; pair < Unit::kRun / 2; ++pair) {
#pragma unroll
          for (int word = 0; word < kWidth / 2; ++word) {
            const u32x2 keys = unpack(u32x1{of[i][pair][word]});
            v.of[i][word * 2][pair] = keys[0];
            v.of[i][word * 2 + 1][pair] = keys[1];
          }
        }
      }
    }

    // O^T += V^T * P^T.
    template <class Codes, class P>
    FA_DEVICE void multiply(const Codes& codes, typename Unit::C* o, const P& p) const {
      multiply_words(codes, o, p, [&](int i, int pair, int word) { return of[i][pair][word]; });
    }
  };

  // The wave waits for the loads here, and not before: the words are opaque.
  FA_DEVICE Turned turned() const {
    Turned t;
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      const int i = kLone<Unit> ? kSteps - 1 - n : n;
#pragma unroll
      for (int m = 0; m < Unit::kRun / 2; ++m) {
        const int pair = kLone<Unit> ? Unit::kRun / 2 - 1 - m : m;
#pragma unroll
        for (int word = 0; word < kWidth / 2; ++word) t.of[i][pair][word] = turned(i, pair, word);
      }
    }
    return t;
  }

  // O^T += V^T * P^T, without a copy of V.
  template <class Codes, class P>
  FA_DEVICE void multiply(const Codes& codes, typename Unit::C* o, const P& p) const {
    multiply_words(codes, o, p, [&](int i, int pair, int word) { return turned(i, pair, word); });
  }

 private:
  // Two elements at a time. Products in a branch by format would take other registers for O.
  template <class Codes, class P, class Turn>
  FA_DEVICE static void multiply_words(const Codes& codes, typename Unit::C* o, const P& p,
                                       const Turn& turn) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const typename Unit::B b = operand_of(p, i);
#pragma unroll
      for (int word = 0; word < kWidth / 2; ++word) {
        uint32_t both[Unit::kRun / 2];
#pragma unroll
        for (int pair = 0; pair < Unit::kRun / 2; ++pair) both[pair] = turn(i, pair, word);
        typename Unit::A first, second;
        codes.unpacking([&](const auto& unpack) {
#pragma unroll
          for (int pair = 0; pair < Unit::kRun / 2; ++pair) {
            const u32x2 keys = unpack(u32x1{both[pair]});
            first[pair] = keys[0];
            second[pair] = keys[1];
          }
        });
        Unit::multiply(o[word * 2], first, b);
        Unit::multiply(o[word * 2 + 1], second, b);
        // On the VALU, or operands stay for later products.
        if constexpr (Unit::kColumns > 1) Unit::pin(o[word * 2]), Unit::pin(o[word * 2 + 1]);
      }
    }
  }

  template <class P>
  FA_DEVICE static typename Unit::B operand_of(const P& p, int i) {
    if constexpr (kLone<Unit>) {
      return p.template operand_of<Unit>(i);
    } else {
      return p.operand(i);
    }
  }

  FA_DEVICE uint32_t turned(int i, int pair, int word) const {
    return here(halves(key[i][pair * 2], key[i][pair * 2 + 1], word));
  }
  // The halves `half` of two keys' pieces.
  FA_DEVICE static uint32_t halves(uint16_t first, uint16_t second, int) {
    typedef uint16_t u16x2 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(uint32_t, u16x2{first, second});
  }
  FA_DEVICE static uint32_t halves(uint32_t first, uint32_t second, int half) {
    return __builtin_amdgcn_perm(second, first, half % 2 == 0 ? 0x05040100 : 0x07060302);
  }
  FA_DEVICE static uint32_t halves(u32x2 first, u32x2 second, int half) {
    return halves(first[half / 2], second[half / 2], half);
  }
};

}  // namespace fa
