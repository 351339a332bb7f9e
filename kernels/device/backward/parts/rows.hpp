// Shared by delta and convert, the kernels for single rows of a head. They compute little, so their speed
// depends on the number of instructions that a wave needs to find its rows, and on the number of loads in
// flight.
#pragma once

#include "device/arch/current.hpp"
#include "device/backward/parts/block.hpp"

namespace fa {

// `loaded_together` for a pointer to data that kernels never write. It is read with scalar loads, which the
// compiler would avoid for an unknown pointer.
FA_DEVICE void loaded_together_constant(const int32_t*& pointer) {
  using Constant = __attribute__((address_space(4))) const int32_t*;
  uint64_t bits = reinterpret_cast<uint64_t>(pointer);
  loaded_together(bits);
  pointer = (const int32_t*)(Constant)bits;
}

// The rows of a workgroup and of a sequence: `begin` counts from the first row of q, and `left` rows of the
// sequence remain from there on.
struct RowsOfGroup {
  int batch, head;
  bool ragged;
  Sequence sequence;
  int first;  // in the sequence
  int begin, left;

  FA_DEVICE RowsOfGroup(const BwdParams& params, int rows)
      : batch(__builtin_amdgcn_workgroup_id_z()),
        head(__builtin_amdgcn_workgroup_id_y()),
        ragged(params.cu_seqlens_q != nullptr),
        sequence(queries(params, batch)),
        first(__builtin_amdgcn_workgroup_id_x() * rows),
        begin(sequence.q_first + first),
        left(sequence.seqlen_q - first) {}

  // Their start, in elements. Counts are non-negative, which halves the instructions of a product if the
  // compiler knows. Rows are less than 2^32 elements apart.
  FA_DEVICE uint64_t at(int64_t of_batch, int64_t of_head, int64_t of_row) const {
    return heads(of_batch, of_head) + static_cast<uint64_t>(static_cast<uint32_t>(of_row)) * count(begin);
  }
  // Likewise for rows of one element.
  FA_DEVICE uint64_t at(int64_t of_batch, int64_t of_head) const {
    return heads(of_batch, of_head) + count(begin);
  }

  // Rows of a tensor of 2-byte elements. A view's first row is 0.
  template <class Tensor>
  FA_DEVICE HeadRows rows_of(const Tensor& tensor) const {
    return {static_cast<const char*>(tensor.data) + at(tensor.batch, tensor.head, tensor.row) * 2,
            tensor.row * 2, left};
  }

 private:
  FA_DEVICE static uint64_t count(int value) { return static_cast<uint32_t>(value); }
  FA_DEVICE uint64_t heads(int64_t of_batch, int64_t of_head) const {
    return static_cast<uint64_t>(of_batch) * count(ragged ? 0 : batch) +
           static_cast<uint64_t>(of_head) * count(head);
  }
};

template <int kCount>
struct Lanes {
  static constexpr int kLanes = kCount;
};

// Calls `action` with the Lanes that share a row of `units`: the least sufficient power of two, from kLeast
// to kMost.
template <int kLeast, int kMost, class Action>
FA_DEVICE void with_lanes_for(int units, const Action& action) {
  if constexpr (kLeast == kMost) {
    action(Lanes<kLeast>());
  } else {
    constexpr int kMiddle = kMost / kLeast >= 8 ? kLeast * 2 : kLeast;
    if (units > kMiddle) {
      with_lanes_for<kMiddle * 2, kMost>(units, action);
    } else {
      with_lanes_for<kLeast, kMiddle>(units, action);
    }
  }
}

}  // namespace fa
