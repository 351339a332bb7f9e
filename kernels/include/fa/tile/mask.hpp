// Which keys a query may see, and which queries see a key.  Host-testable.
#pragma once

namespace fa {

// Keys [begin(row), end(row)) are visible to query `row`; neither bound falls from one row to the next.
struct Visibility {
  int seqlen_q;
  int seqlen_k;
  int window_left;  // keys before the diagonal, and after it; negative: all
  int window_right;

  // The key that the bottom right corner's diagonal has in a row.
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

  // The end of the keys that any of `rows` queries from `first` on may see; 0 when there are no such queries.
  // The first that any of them may see is begin(first).
  constexpr int end_of_rows(int first, int rows) const {
    if (first >= seqlen_q) return 0;
    return end(seqlen_q - first < rows ? seqlen_q - 1 : first + rows - 1);
  }

  // Queries [first_row(key), last_row(key)) see key `key`; neither bound falls from one key to the next.
  constexpr int first_row(int key) const {
    const int first = key - seqlen_k + seqlen_q - window_right;
    return window_right < 0 || first < 0 ? 0 : first;
  }

  constexpr int last_row(int key) const {
    const int bound = key - seqlen_k + seqlen_q + 1 + window_left;
    const int last = window_left >= 0 && bound < seqlen_q ? bound : seqlen_q;
    return last > 0 ? last : 0;
  }
};

}  // namespace fa
