// Tiles of 8-bit elements loaded straight into LDS: chunks of 16 rows as in memory/direct.hpp, with kSpread.
// A transposed read takes eight rows of 16 elements. Each half of a wave reads half of the 256 bytes of rows
// 0 to 3, or 4 to 7, and the other half of those of rows 8 further, whose units are permuted: no banks
// conflict.
#pragma once

#include "device/memory/direct.hpp"

namespace fa {

// A lane's elements of O^T, whose rows are in order: the transposed reads give 8 lanes consecutive elements.
template <class Unit>
struct OrderedRows : Unit {
  static constexpr int held_begin(int lane, int) { return Unit::c_row(lane, 0); }
  static constexpr int held_step(int f) {
    return f / Unit::kRows * Unit::kM + Unit::c_row(0, f % Unit::kRows);
  }
};

template <class Unit, int kRows, int kHeadDim, int kThreads>
struct DirectByteStage {
  static constexpr int kChunkRows = 16, kChunkBytes = 1024, kChunkKeys = 8;
  static constexpr int kPieces = kHeadDim / 64;  // pieces of 64 bytes per row
  static constexpr int kChunks = kRows / kChunkRows * kPieces;
  static constexpr int kWaves = kThreads / Unit::kWave;
  static constexpr int kLoads = kChunks / kWaves;
  static_assert(kChunks % kWaves == 0, "each wave has as many loads");
  static_assert(kLoads == 1 || kWaves % kPieces == 0, "a wave's loads are of one piece");
  static_assert(kRows == 64 && Unit::kWave == 64 && Unit::kM == 32 && Unit::kRun == 32, "slots of MFMA");
  static_assert(Unit::row_of_slot(16, kRows) == kChunkKeys, "chunks start with every eighth key");

  struct Tile {
    static constexpr int kBytes = kRows * kHeadDim;
  };

  // Addresses of a lane's loads of a tile, relative to the tile's first row.
  struct Lines {
    uint32_t row_bytes, from;

    FA_DEVICE Lines(uint32_t row_bytes, int wave, int lane)
        : row_bytes(row_bytes),
          // A stride is below kMaxRowStride, so a 24-bit multiplication suffices.
          from((row(0, wave, lane) * (row_bytes / 2 % (1u << 24)) + byte(wave, lane) / 2u) * 2) {}

    FA_DEVICE void load(const char* rows, LdsBytes tile, int wave) const {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        load_to_lds(rows + static_cast<uint64_t>(i * kApart * row_bytes), from,
                    tile + (wave + i * kWaves) * kChunkBytes);
      }
    }
    // As `load`, for a tile with last row `last`. Rows beyond it are copies of it.
    FA_DEVICE void load_end(const char* rows, int last, LdsBytes tile, int wave, int lane) const {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int own = row(i, wave, lane);
        load_to_lds(rows, (own < last ? own : last) * row_bytes + byte(wave, lane),
                    tile + (wave + i * kWaves) * kChunkBytes);
      }
    }

   private:
    static constexpr int kApart = kWaves / kPieces * kChunkKeys;  // rows between two loads of a lane

    FA_DEVICE static int row(int i, int wave, int lane) {
      return Unit::row_of_slot(lane / 4, kRows) + wave / kPieces * kChunkKeys + i * kApart;
    }
    FA_DEVICE static int byte(int wave, int lane) {
      return wave % kPieces * 64 + (lane % 4 ^ lane / 16) * 16;
    }
  };

  // A lane's operands of a tile by rows: step i contracts over head_dim, for 32 rows.
  struct Rows {
    LdsBytes low, high;  // the two units of the first

    FA_DEVICE static int offset(int lane) {
      const int row = Unit::a_row(lane), in_chunk = row % kChunkRows;
      return row / kChunkRows * (kPieces * kChunkBytes) + in_chunk * 64 + (lane / 32 * 2 ^ in_chunk / 4) * 16;
    }
    FA_DEVICE explicit Rows(LdsBytes first)
        : low(first), high((LdsBytes)(reinterpret_cast<uintptr_t>(first) ^ 16)) {}
    FA_DEVICE Rows beyond(int bytes) const {
      Rows rows = *this;
      rows.low += bytes, rows.high += bytes;
      return rows;
    }
    FA_DEVICE u32x4 read_half(int i, int step, int half) const {
      using Words = __attribute__((address_space(3))) u32x4*;
      const int chunk = step * (Unit::kM / kChunkRows) * kPieces + i;
      return *(Words)((half == 0 ? low : high) + chunk * kChunkBytes);
    }
    FA_DEVICE typename Unit::A read(int i, int step) const {
      typename Unit::A a;
      a.lo = read_half(i, step, 0);
      a.hi = read_half(i, step, 1);
      return a;
    }
  };

  // Operand A of result step `step`, 32 elements of head_dim, at step i of the contraction over rows.
  struct Turned {
    using A = typename Unit::A;
    LdsBytes even, odd;  // by step

    FA_DEVICE static int offset(int lane) {
      const int key = lane % 16 / 2;  // of the eight
      const int row = key / 4 * 8 + lane / 32 * 4 + key % 4;
      return row * 64 + (lane / 16 % 2 ^ row / 4) * 16 + lane % 2 * 8;
    }
    FA_DEVICE explicit Turned(LdsBytes first)
        : even(first), odd((LdsBytes)(reinterpret_cast<uintptr_t>(first) ^ 32)) {}
    FA_DEVICE Turned beyond(int bytes) const {
      Turned turned = *this;
      turned.even += bytes, turned.odd += bytes;
      return turned;
    }
    FA_DEVICE A read(int i, int step) const {
      A a;
#pragma unroll
      for (int eight = 0; eight < 4; ++eight) {
        const int chunk = (i * 4 + eight) * kPieces + step / 2;
        const u32x2 words = read_turned_bytes((step % 2 == 0 ? even : odd) + chunk * kChunkBytes);
        a[eight * 2] = words[0], a[eight * 2 + 1] = words[1];
      }
      return a;
    }
  };

  // Of each 16 lanes, lane l gets element l of eight rows. Lanes 2n and 2n + 1 have the places of row n.
  FA_DEVICE static u32x2 read_turned_bytes(LdsBytes place) {
    typedef int Two __attribute__((ext_vector_type(2)));
    using Words = __attribute__((address_space(3))) Two*;
    return __builtin_bit_cast(u32x2, __builtin_amdgcn_ds_read_tr8_b64_v2i32((Words)place));
  }
};

}  // namespace fa
