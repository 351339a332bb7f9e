// Moves tiles from global memory through registers into LDS twice: as rows (operand A of a product over
// head_dim) and transposed (operand A of a product over rows). It handles several tensors at once, with all
// their pieces divided among the threads of a workgroup.
#pragma once

#include "device/memory/stage.hpp"

namespace fa {

// kOverlaid: both forms have the same place, one after the other. kSpreads: stores are also spread over the
// banks above head dim 128, which takes registers.
template <class Layout, int kRows, int kHeadDim, int kThreads, bool kPadded, int kTensors, bool kOverlaid,
          bool kSpreads = false>
struct TransposedStage {
  // Whether rows of LDS are in an order made for stores of pieces.
  static constexpr bool kSpread = kPadded && Layout::kM == 16 && kHeadDim <= 192;
  template <class Fragments, int kTileRows, int kTileRowBytes>
  using Tile = PlacedTile<Choice<kSpread, Fragments, Swizzle<kTileRows, kTileRowBytes, Layout::kM, kPadded>>>;
  static constexpr bool kInOrder = Layout::slot_of_row(1, kRows) == 1;  // rows of LDS
  using RowTile = Tile<RowFragments<kRows, kHeadDim * 2, kInOrder>, kRows, kHeadDim * 2>;
  using TransposedTile = Tile<TransposedFragments<kHeadDim, kRows * 2, kInOrder>, kHeadDim, kRows * 2>;
  static constexpr int kTransposedAt = kOverlaid ? 0 : kTensors * RowTile::kBytes;
  static constexpr int kRowsEnd = kTensors * RowTile::kBytes;
  static constexpr int kTransposedEnd = kTransposedAt + kTensors * TransposedTile::kBytes;
  static constexpr int kBytes = kRowsEnd > kTransposedEnd ? kRowsEnd : kTransposedEnd;
  // A piece is 4 rows by 4 elements.
  static constexpr int kAcross = kHeadDim / 4;
  static constexpr int kPieces = kRows / 4 * kAcross;  // of one tensor
  static constexpr int kLoads = (kTensors * kPieces + kThreads - 1) / kThreads;
  static_assert(kPieces % Layout::kWave == 0, "a wave's pieces are of one tensor");

  // Whether neighbouring lanes have other rows, and their columns. Stores of both forms then avoid bank
  // conflicts.
  static constexpr int kBlocks = kRows / 4;
  static constexpr bool kByEights = Layout::kM == 8 && kRows == 32 && (kAcross & (kAcross - 1)) == 0;
  static constexpr bool kByColumns = Layout::kM == 32 && kRows == 32 && (kHeadDim <= 128 || kSpreads);
  static constexpr bool kSkewed = kByColumns || kSpread || kByEights;

  // Whether a thread has at most one piece, whose addresses in memory and LDS can be kept through a loop.
  static constexpr bool kFixed = kPadded && kLoads == 1 && (kSpread || kByEights);

  u32x2 row[kLoads][4];

  // Places of a tensor's two forms.
  FA_DEVICE static LdsBytes rows_of(LdsBytes tiles, int tensor) { return tiles + tensor * RowTile::kBytes; }
  FA_DEVICE static LdsBytes transposed_of(LdsBytes tiles, int tensor) {
    return tiles + kTransposedAt + tensor * TransposedTile::kBytes;
  }

  // `view(tensor)` is the view of the tile's rows.
  template <class View>
  FA_DEVICE void load(const View& view, int thread) {
    for_pieces<kTensors * kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const auto source = view(tensor_of(i, index));
      const int first = block_of(index) * 4, byte = column_of(index) * 8;
#pragma unroll
      for (int j = 0; j < 4; ++j) row[i][j] = source.template read<u32x2>(first + j, byte);
    });
  }

  // `action(tensor, words)` gives the words to store.
  template <class Action>
  FA_DEVICE void change(int thread, const Action& action) {
    for_pieces<kTensors * kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
#pragma unroll
      for (int j = 0; j < 4; ++j) row[i][j] = action(tensor_of(i, index), row[i][j]);
    });
  }

  FA_DEVICE void store_rows(LdsBytes tiles, int thread) const {
    for_pieces<kTensors * kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const LdsBytes rows = rows_of(tiles, tensor_of(i, index));
      const int block = block_of(index), column = column_of(index);
      if constexpr (kByColumns && !kPadded) {
        const typename RowTile::template Row<u32x2> place(
            tiles, Layout::slot_of_row(block * 4, kRows), column / 2,
            column % 2 * 8 + tensor_of(i, index) * RowTile::kBytes);
#pragma unroll
        for (int j = 0; j < 4; ++j) place.write(j, row[i][j]);
        return;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (kSkewed && kPadded) {
          const LdsBytes first =
              rows + RowTile::offset(Layout::slot_of_row(block * 4, kRows), 0) + half_unit<RowTile>(column);
          RowTile::write(first, Layout::slot_of_row(j, kRows), 0, 0, row[i][j]);
        } else {
          RowTile::write(rows, Layout::slot_of_row(block * 4 + j, kRows), column / 2, column % 2 * 8,
                         row[i][j]);
        }
      }
    });
  }

  FA_DEVICE void store_transposed(LdsBytes tiles, int thread) const {
    for_pieces<kTensors * kPieces, kThreads, Layout::kWave>(thread, [&](int i, int index) {
      const LdsBytes transposed = transposed_of(tiles, tensor_of(i, index));
      const int block = block_of(index), column = column_of(index);
      if constexpr (kByColumns && !kPadded) {
        const typename TransposedTile::template Row<u32x2> place(
            tiles + kTransposedAt, Layout::slot_of_row(column * 4, kHeadDim), block / 2,
            block % 2 * 8 + tensor_of(i, index) * TransposedTile::kBytes);
#pragma unroll
        for (int e = 0; e < 4; ++e) place.write(e, element_of_rows(i, e));
        return;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const u32x2 words = element_of_rows(i, e);
        if constexpr (kSkewed && kPadded) {
          const LdsBytes first = transposed +
                                 TransposedTile::offset(Layout::slot_of_row(column * 4, kHeadDim), 0) +
                                 half_unit<TransposedTile>(block);
          TransposedTile::write(first, Layout::slot_of_row(e, kHeadDim), 0, 0, words);
        } else {
          TransposedTile::write(transposed, Layout::slot_of_row(column * 4 + e, kHeadDim), block / 2,
                                block % 2 * 8, words);
        }
      }
    });
  }

  // For a thread with one piece, in permuted tiles, with its addresses kept: the piece's address relative to
  // the tile, and its two places in LDS.
  FA_DEVICE static u32x4 places(uint32_t row_bytes, int thread) {
    static_assert(kByColumns && !kPadded && kLoads == 1, "one piece, in permuted tiles");
    const int tensor = tensor_of_wave(thread), block = block_of(thread), column = column_of(thread);
    const int from = block * 4 * row_bytes + column * 8;
    const int rows = tensor * RowTile::kBytes + column % 2 * 8 +
                     RowTile::offset(Layout::slot_of_row(block * 4, kRows), column / 2);
    const int transposed = kTransposedAt + tensor * TransposedTile::kBytes + block % 2 * 8 +
                           TransposedTile::offset(Layout::slot_of_row(column * 4, kHeadDim), block / 2);
    return {static_cast<uint32_t>(from), static_cast<uint32_t>(rows), static_cast<uint32_t>(transposed), 0};
  }
  template <class View>
  FA_DEVICE void load_from(u32x4 places, const View& view) {
    const uint32_t from = here(static_cast<uint32_t>(places[0]));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      row[0][j] = view.template read_at<u32x2>(static_cast<int>(from + j * view.row_bytes));
    }
  }
  FA_DEVICE void store_rows_to(u32x4 places, LdsBytes tiles) const {
    const int first = here(static_cast<int>(places[1]));
#pragma unroll
    for (int j = 0; j < 4; ++j) put(tiles + RowTile::offset_below(first, j), row[0][j]);
  }
  FA_DEVICE void store_transposed_to(u32x4 places, LdsBytes tiles) const {
    const int first = here(static_cast<int>(places[2]));
#pragma unroll
    for (int e = 0; e < 4; ++e) put(tiles + TransposedTile::offset_below(first, e), element_of_rows(0, e));
  }

  // Makes the loaded registers undefined.
  FA_DEVICE void forget() {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) row[i][j] = anything<u32x2>();
    }
  }

  // A thread's piece: its address relative to the tile, and its two places in LDS.
  struct Place {
    int from[4];
    LdsBytes rows, transposed;
  };
  FA_DEVICE static Place place(LdsBytes tiles, uint32_t row_bytes, int thread) {
    static_assert(kFixed, "one piece, in padded tiles");
    const int tensor = tensor_of(0, thread), block = block_of(thread), column = column_of(thread);
    Place place;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      place.from[j] = here(static_cast<int>((block * 4 + j) * row_bytes + column * 8));
    }
    place.rows = here(rows_of(tiles, tensor) + RowTile::offset(Layout::slot_of_row(block * 4, kRows), 0) +
                      half_unit<RowTile>(column));
    place.transposed = here(transposed_of(tiles, tensor) +
                            TransposedTile::offset(Layout::slot_of_row(column * 4, kHeadDim), 0) +
                            half_unit<TransposedTile>(block));
    return place;
  }
  FA_DEVICE static bool has_piece(int thread) {
    return kTensors * kPieces >= kThreads || uniform(thread) < kTensors * kPieces;
  }
  template <class View>
  FA_DEVICE void load_at(const Place& place, const View& view, int thread) {
    if (!has_piece(thread)) return;
#pragma unroll
    for (int j = 0; j < 4; ++j) row[0][j] = view.template read_at<u32x2>(place.from[j]);
  }
  FA_DEVICE void store_rows_at(const Place& place, int thread) const {
    if (!has_piece(thread)) return;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      RowTile::write(place.rows, Layout::slot_of_row(j, kRows), 0, 0, row[0][j]);
    }
  }
  FA_DEVICE void store_transposed_at(const Place& place, int thread) const {
    if (!has_piece(thread)) return;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      TransposedTile::write(place.transposed, Layout::slot_of_row(e, kHeadDim), 0, 0, element_of_rows(0, e));
    }
  }

  // The tensor of a wave's pieces, with one piece per thread.
  FA_DEVICE static int tensor_of_wave(int thread) {
    static_assert(kLoads == 1, "a wave's pieces are of one tensor");
    return uniform(thread / kPieces);
  }

 protected:
  FA_DEVICE static void put(LdsBytes place, u32x2 words) {
    *reinterpret_cast<__attribute__((address_space(3))) u32x2*>(place) = words;
  }
  // Element `e` of the four rows.
  FA_DEVICE u32x2 element_of_rows(int i, int e) const {
    const uint32_t half = e % 2 == 0 ? 0x05040100 : 0x07060302;  // halves of two words, for v_perm
    return {__builtin_amdgcn_perm(row[i][1][e / 2], row[i][0][e / 2], half),
            __builtin_amdgcn_perm(row[i][3][e / 2], row[i][2][e / 2], half)};
  }
  // Offset of half a unit in its row.
  template <class Tile>
  FA_DEVICE static int half_unit(int index) {
    if constexpr (kSpread) return index / 2 * Tile::kUnitBytes + index % 2 * 8;
    return index * 8;
  }
  FA_DEVICE static int tensor_of(int i, int index) {
    return kTensors == 1 ? 0 : kPieces % kThreads == 0 ? i * kThreads / kPieces : uniform(index / kPieces);
  }
  FA_DEVICE static int piece(int index) { return kTensors == 1 ? index : index % kPieces; }
  // The 4 rows and the 4 elements of piece `index`.
  FA_DEVICE static int block_of(int index) { return kSkewed ? index % kBlocks : piece(index) / kAcross; }
  FA_DEVICE static int column_of(int index) {
    if constexpr (!kSkewed) return piece(index) % kAcross;
    const int column = piece(index) / kBlocks;
    if constexpr (Layout::kM == 32) return kPadded ? column ^ (block_of(index) & 5) : column;
    if constexpr (kByEights) return column ^ column % 2 * (kPadded ? kAcross / 2 : kAcross / 8);
    return spread_column(column, kBlocks, kInOrder);
  }
};

}  // namespace fa
