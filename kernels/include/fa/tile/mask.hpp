// Which keys a query may see.  Host-testable.
#pragma once

namespace fa {

// Keys [0, end(row)) are visible to query `row`; causal is aligned to the bottom right corner.
struct Visibility {
  int seqlen_q;
  int seqlen_k;
  bool causal;

  constexpr int end(int row) const {
    const int diagonal = row + 1 - seqlen_q + seqlen_k;
    const int last = causal && diagonal < seqlen_k ? diagonal : seqlen_k;
    return last > 0 ? last : 0;
  }

  // The most keys that any of `rows` queries from `first` on may see; 0 when there are no such queries.
  constexpr int end_of_rows(int first, int rows) const {
    if (first >= seqlen_q) return 0;
    return end(seqlen_q - first < rows ? seqlen_q - 1 : first + rows - 1);
  }
};

}  // namespace fa
