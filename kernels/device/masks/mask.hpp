// Keys visible to a query, queries that see a key, and the tiles of these needed by a workgroup.
// Host-testable.
#pragma once

// Always inlined: the scheduling of kernels depends on it.
#define FA_INLINE __attribute__((always_inline)) inline

namespace fa {

// Bounds of a workgroup's tiles, of the ones its wave sees, and of the ones all rows of the wave see.
struct TileBounds {
  int begin, end;
  int wave_begin, wave_end;
  int unmasked_begin, unmasked_end;
};

// Keys [begin(row), end(row)) are visible to query `row`. Both bounds rise or stay from row to row.
struct Visibility {
  int seqlen_q;
  int seqlen_k;
  int window_left;  // keys before and after the diagonal; negative: all
  int window_right;

  // The row's key on the diagonal aligned to the bottom right corner.
  constexpr int diagonal(int row) const { return row - seqlen_q + seqlen_k; }

  constexpr int begin(int row) const {
    const int first = diagonal(row) - window_left;
    return window_left < 0 || first < 0 ? 0 : first;
  }

  constexpr int end(int row) const {
    const int bound = diagonal(row) + 1 + window_right;
    const int last = window_right >= 0 && bound < seqlen_k ? bound : seqlen_k;
    return last > 0 ? last : 0;
  }

  // End of the keys visible to any of `rows` queries from `first` on, or 0 without such queries. Their first
  // key is begin(first).
  constexpr int end_of_rows(int first, int rows) const {
    if (first >= seqlen_q) return 0;
    return end(seqlen_q - first < rows ? seqlen_q - 1 : first + rows - 1);
  }

  // Queries [first_row(key), last_row(key)) see key `key`. Both bounds rise or stay from key to key.
  constexpr int first_row(int key) const {
    const int first = key - seqlen_k + seqlen_q - window_right;
    return window_right < 0 || first < 0 ? 0 : first;
  }

  constexpr int last_row(int key) const {
    const int bound = key - seqlen_k + seqlen_q + 1 + window_left;
    const int last = window_left >= 0 && bound < seqlen_q ? bound : seqlen_q;
    return last > 0 ? last : 0;
  }

  // Tiles of `size` keys, for a block of `rows` queries from `first` on and its wave's `wave_rows`.
  FA_INLINE constexpr TileBounds tiles_of_rows(int first, int rows, int wave_first, int wave_rows,
                                               int size) const {
    return {begin(first) / size * size,         end_of_rows(first, rows),          begin(wave_first),
            end_of_rows(wave_first, wave_rows), begin(wave_first + wave_rows - 1), end(wave_first)};
  }

  // As tiles_of_rows, in fewer CDNA instructions: at most two branches without a window. `first` is an
  // existing row.
  FA_INLINE constexpr TileBounds tiles_of_rows_by_branches(int first, int rows, int wave_first, int wave_rows,
                                                           int size) const {
    const auto least = [](int a, int b) { return a < b ? a : b; };
    const auto most = [](int a, int b) { return a < b ? b : a; };
    TileBounds found = {0, seqlen_k, 0, seqlen_k, 0, seqlen_k};
    if (__builtin_expect(window_right >= 0, 0)) {
      const int right = seqlen_k - seqlen_q + 1 + window_right;
      const auto to_key = [&](int row) { return most(least(row + right, seqlen_k), 0); };
      found.end = to_key(least(first + rows, seqlen_q) - 1);
      found.wave_end = to_key(least(wave_first + wave_rows, seqlen_q) - 1);
      found.unmasked_end = to_key(wave_first);
    }
    if (__builtin_expect(window_left >= 0, 0)) {
      const int left = seqlen_k - seqlen_q - window_left;
      const auto from_key = [&](int row) { return most(row + left, 0); };
      found.begin = static_cast<int>(static_cast<unsigned>(from_key(first)) / size * size);
      found.wave_begin = from_key(wave_first);
      found.unmasked_begin = from_key(wave_first + wave_rows - 1);
    }
    if (wave_first >= seqlen_q) found.wave_end = 0;
    return found;
  }

  // Tiles of `size` queries, for a block of `keys` keys from `first` on (its first key exists in the
  // sequence), and its wave's `wave_keys`. A wave beyond the last key sees no query.
  FA_INLINE constexpr TileBounds tiles_of_keys(int first, int keys, int wave_first, int wave_keys,
                                               int size) const {
    const int past = first + keys < seqlen_k ? first + keys : seqlen_k;
    const int wave_past = wave_first + wave_keys < past ? wave_first + wave_keys : past;
    const int begin = first_row(first) / size * size;
    if (wave_first >= past) return {begin, last_row(past - 1), 0, 0, 0, 0};
    return {begin,
            last_row(past - 1),
            first_row(wave_first),
            last_row(wave_past - 1),
            first_row(wave_past - 1),
            last_row(wave_first)};
  }

  // As tiles_of_keys, in fewer CDNA instructions.
  FA_INLINE constexpr TileBounds tiles_of_keys_by_bounds(int first, int keys, int wave_first, int wave_keys,
                                                         int size) const {
    const int apart = seqlen_q - seqlen_k;
    const int left = window_left < 0 ? seqlen_q : apart + 1 + window_left;
    const int right = window_right < 0 ? -0x7fffffff - 1 : apart - window_right;
    const auto least = [](int a, int b) { return a < b ? a : b; };
    const auto most = [](int a, int b) { return a < b ? b : a; };
    const auto from_row = [&](int key) { return most(key + right, 0); };
    const auto to_row = [&](int key) { return most(least(key + left, seqlen_q), 0); };
    const int past = least(first + keys, seqlen_k);
    const int wave_last = least(wave_first + wave_keys, past) - 1;
    const unsigned begin = from_row(first);
    return {static_cast<int>(begin / size * size),     to_row(past - 1),    from_row(wave_first),
            wave_first < past ? to_row(wave_last) : 0, from_row(wave_last), to_row(wave_first)};
  }
};

}  // namespace fa
