// Tiles loaded straight into LDS, without registers. Such a load fills 1024 consecutive bytes, 16 per lane: a
// chunk with 64 bytes of each of 16 rows. A lane may read any address, so rows are in the order of slots
// (mma/layout.hpp), and units of a row may be permuted.
//
// With an LDS serving 256 bytes at once, a chunk is read both ways without bank conflicts. Transposed reads
// take four rows, which are 256 consecutive bytes. Reads by rows take one unit of each of 16 rows: with
// kSpread, the four units of rows from 4 on are permuted, differently in each group of four rows, so all 16
// have different positions.
#pragma once

#include "device/memory/turned.hpp"

namespace fa {

template <class Unit, int kRows, int kHeadDim, int kThreads, bool kSpread>
struct DirectStage {
  static constexpr int kChunkRows = 16, kChunkBytes = 1024;
  static constexpr int kPieces = kHeadDim * 2 / 64;  // pieces of 64 bytes per row
  static constexpr int kChunks = kRows / kChunkRows * kPieces;
  static constexpr int kWaves = kThreads / Unit::kWave;
  static constexpr int kLoads = kChunks / kWaves;
  static constexpr int kApart = kWaves / kPieces * kChunkRows;  // rows between two loads of a lane
  static_assert(kChunks % kWaves == 0, "each wave has as many loads");
  static_assert(kLoads == 1 || kApart * kPieces == kWaves * kChunkRows, "a wave's loads are of one piece");
  static_assert(Unit::kWave == 64 && Unit::kM == 32 && Unit::kK == 16 && Unit::kRun == 8, "slots of MFMA");
  static_assert(Unit::slot_of_row(Unit::slot_of_row(5, kRows), kRows) == 5, "slots are a row's own inverse");

  struct Tile {
    static constexpr int kBytes = kRows * kHeadDim * 2;
  };

  // Of a lane's load.
  FA_DEVICE static int slot(int row) { return Unit::slot_of_row(row, kRows); }
  FA_DEVICE static int unit(int lane) { return lane % 4 ^ (kSpread ? lane / 16 : 0); }

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
    FA_DEVICE static int row(int i, int wave, int lane) {
      return Unit::slot_of_row(lane / 4, kRows) + wave / kPieces * kChunkRows + i * kApart;
    }
    FA_DEVICE static int byte(int wave, int lane) {
      return wave % kPieces * 64 + (lane % 4 ^ (kSpread ? lane / 16 : 0)) * 16;
    }
  };

  // A lane's operands of a tile by rows: step i contracts over head_dim, for 32 rows.
  struct Rows {
    LdsBytes even, odd;

    FA_DEVICE static int offset(int lane) {
      const int row = Unit::a_row(lane), in_chunk = row % kChunkRows;
      const int unit = lane / 32 ^ (kSpread ? in_chunk / 4 : 0);
      return row / kChunkRows * (kPieces * kChunkBytes) + in_chunk * 64 + unit * 16;
    }
    // `first`: place of the lane's first operand.
    FA_DEVICE explicit Rows(LdsBytes first)
        : even(first), odd((LdsBytes)(reinterpret_cast<uintptr_t>(first) ^ 32)) {}
    // The operands of the tile `bytes` further. Reads add it as a constant.
    FA_DEVICE Rows beyond(int bytes) const {
      Rows rows = *this;
      rows.even += bytes, rows.odd += bytes;
      return rows;
    }
    FA_DEVICE typename Unit::A read(int i, int step) const {
      using Words = __attribute__((address_space(3))) typename Unit::A*;
      const int chunk = step * (Unit::kM / kChunkRows) * kPieces + i / 2;
      return *(Words)((i % 2 == 0 ? even : odd) + chunk * kChunkBytes);
    }
  };

  // Transposed operands, as TurnedStage::Turned: operand A of result step `step`, at step i of the
  // contraction over rows.
  struct Turned {
    using A = typename Unit::A;
    LdsBytes upper, lower;  // per 16 rows

    FA_DEVICE static int offset(int lane) {
      const int place = turned_row(lane) * 64 + turned_byte(lane);
      return kSpread ? place ^ lane / 32 * 16 : place;
    }
    // Rows from 8 on have another permutation of units.
    FA_DEVICE explicit Turned(LdsBytes first)
        : upper(first), lower(kSpread ? (LdsBytes)(reinterpret_cast<uintptr_t>(first) ^ 32) : first) {}
    FA_DEVICE Turned beyond(int bytes) const {
      Turned turned = *this;
      turned.upper += bytes, turned.lower += bytes;
      return turned;
    }
    FA_DEVICE A read(int i, int step) const {
      const int chunk = (i * kPieces + step) * kChunkBytes;
      A a;
      a.lo = read_turned(upper + chunk);
      a.hi = read_turned(lower + chunk + 8 * 64);
      return a;
    }
  };
};

// As Stage::Lines, where a wave's loads of a tile are neighbours in their rows: one place for all of them,
// and `load<i>` for each.
template <class Stage>
struct NearLines {
  static constexpr int kLoads = Stage::kLoads, kWavesOfRows = Stage::kPieces / kLoads;
  static_assert(Stage::kPieces % kLoads == 0, "a wave's loads are of the same rows");

  uint32_t row_bytes, from;

  FA_DEVICE NearLines(uint32_t row_bytes, int wave, int lane)
      : row_bytes(row_bytes),
        from((row(wave, lane) * (row_bytes / 2 % (1u << 24)) + byte(wave, lane) / 2u) * 2) {}

  FA_DEVICE static LdsBytes place(LdsBytes tile, int wave) {
    return tile + wave * (kLoads * Stage::kChunkBytes);
  }
  template <int i>
  FA_DEVICE void load(const char* rows, LdsBytes place) const {
    load_to_lds<i * 64, i * Stage::kChunkBytes>(rows, from, place);
  }
  FA_DEVICE void load_all(const char* rows, LdsBytes place) const { all(rows, from, place); }
  // For a tile with last row `last`. Rows beyond it are copies of it.
  FA_DEVICE void load_end(const char* rows, int last, LdsBytes place, int wave, int lane) const {
    const int own = row(wave, lane);
    all(rows, (own < last ? own : last) * row_bytes + byte(wave, lane), place);
  }

 private:
  template <int i = 0>
  FA_DEVICE static void all(const char* rows, uint32_t offset, LdsBytes place) {
    if constexpr (i < kLoads) {
      load_to_lds<i * 64, i * Stage::kChunkBytes>(rows, offset, place);
      all<i + 1>(rows, offset, place);
    }
  }
  FA_DEVICE static int row(int wave, int lane) {
    return Stage::slot(lane / 4) + wave / kWavesOfRows * Stage::kChunkRows;
  }
  FA_DEVICE static int byte(int wave, int lane) {
    return wave % kWavesOfRows * (kLoads * 64) + Stage::unit(lane) * 16;
  }
};

// Tiles of several tensors, read by all waves of a workgroup. Each loop turn handles kAtOnce of them, one
// after the other. Half of the waves load. There are three sets: one is loaded while waves use the other two.
template <class Unit, int kRows, int kHeadDim, int kThreads, int kTensors, int kAtOnce>
struct DirectTensors : DirectStage<Unit, kRows, kHeadDim, kThreads / 2, true> {
  using Base = DirectStage<Unit, kRows, kHeadDim, kThreads / 2, true>;
  static constexpr int kTileBytes = Base::Tile::kBytes;
  static constexpr int kTilesBytes = kTensors * kTileBytes;
  static constexpr int kSetBytes = kAtOnce * kTilesBytes;
  static constexpr int kBytes = 3 * kSetBytes;
  static constexpr int kRowsEnd = kSetBytes;  // of the first set
};

// Uses the names of the other stages of a tile.
template <class Unit, int kRows, int kHeadDim, int kThreads>
struct DirectTiles {
  using Stage = DirectStage<Unit, kRows, kHeadDim, kThreads, true>;
  using Tile = typename Stage::Tile;
  static constexpr int kBytes = Tile::kBytes;
};

}  // namespace fa
