// Location of one sequence of a batch in the tensors. Host-testable.
#pragma once

#include "device/call/params.hpp"

namespace fa {

struct Sequence {
  int q_first, seqlen_q;  // rows of q from the batch's base on
  int k_first, seqlen_k;  // rows of k and v likewise; with a block table, of the sequence's pages
};

constexpr int cut(int value, int low, int high) { return value < low ? low : value > high ? high : value; }

// The queries of a sequence, without its keys. Params is FwdParams or CombineParams.
template <class Params>
constexpr Sequence queries(const Params& p, int batch) {
  Sequence s{0, p.seqlen_q, 0, 0};
  if (p.cu_seqlens_q != nullptr) {
    s.q_first = cut(p.cu_seqlens_q[batch], 0, p.rows_q);
    const int end = cut(p.cu_seqlens_q[batch + 1], s.q_first, p.rows_q);
    s.seqlen_q = cut(end - s.q_first, 0, p.seqlen_q);
  }
  return s;
}

// Values in device memory are clamped to the tensors.
constexpr Sequence sequence(const FwdParams& p, int batch) {
  Sequence s = queries(p, batch);
  s.seqlen_k = p.seqlen_k;
  if (p.cu_seqlens_k != nullptr) {
    const int first = cut(p.cu_seqlens_k[batch], 0, kMaxLength);
    const int length = cut(p.cu_seqlens_k[batch + 1], first, kMaxLength) - first;
    if (p.block_table == nullptr) {
      s.k_first = first < p.rows_k ? first : p.rows_k;
      s.seqlen_k = cut(length, 0, p.rows_k - s.k_first);
    } else if (p.seqused_k == nullptr) {
      s.seqlen_k = cut(length, 0, p.seqlen_k);
    }
  }
  if (p.seqused_k != nullptr) s.seqlen_k = cut(p.seqused_k[batch], 0, s.seqlen_k);
  if (p.leftpad_k != nullptr) {
    const int padding = cut(p.leftpad_k[batch], 0, s.seqlen_k);
    s.k_first += padding;
    s.seqlen_k -= padding;
  }
  return s;
}

// Counts are non-negative. Knowing this, the compiler divides with fewer instructions.
constexpr int blocks_of_rows(int rows, int block) {
  return static_cast<int>((static_cast<unsigned>(rows) + (block - 1)) / static_cast<unsigned>(block));
}

// Part number `part` of [begin, end) cut into `parts` nearly equal parts. Empty if there are fewer elements.
struct Part {
  int begin, end;
};

constexpr Part part_of(int begin, int end, int part, int parts) {
  if (parts <= 1 || end <= begin) return {begin, end};
  const int each = (end - begin) / parts, more = (end - begin) % parts;
  const int first = begin + part * each + (part < more ? part : more);
  return {first, first + each + (part < more ? 1 : 0)};
}

// The sequence's place in the batch of k and v.
constexpr int place_in_cache(const FwdParams& p, int batch) {
  return p.cache_batch_idx == nullptr ? batch : cut(p.cache_batch_idx[batch], 0, p.batch_k - 1);
}

}  // namespace fa
