// Rows of a matrix in global memory, read through a buffer resource: what lies beyond the last row
// reads as zero and touches no memory, so ragged tiles need no code of their own.
#pragma once

#include "fa/arch/device.hpp"

namespace fa {

// A matrix of one batch and head: rows of consecutive elements, `row_bytes` apart.
struct Matrix {
  const char* base;
  int64_t row_bytes;
  int rows;
};

// Up to kRows rows of a matrix from row `first` on.  Offsets inside are 32 bits wide: kRows * row_bytes <
// 2^32 (kernel/params.hpp, kMaxRowStride).
template <int kRows, int kRowBytes, uint32_t kWord3>
struct Window {
  __amdgpu_buffer_rsrc_t resource;
  uint32_t row_bytes;

  FA_DEVICE Window(const Matrix& matrix, int first) : row_bytes(static_cast<uint32_t>(matrix.row_bytes)) {
    const int left = matrix.rows - first;
    const int rows = left < kRows ? left : kRows;
    const uint32_t bytes = rows > 0 ? (rows - 1) * row_bytes + kRowBytes : 0;
    const char* base = matrix.base + first * matrix.row_bytes;
    resource = __builtin_amdgcn_make_buffer_rsrc(const_cast<char*>(base), 0, static_cast<int>(bytes), kWord3);
  }

  template <class T>
  FA_DEVICE T read(int row, int byte) const {
    const int offset = static_cast<int>(row * row_bytes + byte);
    if constexpr (sizeof(T) == 4) {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b32(resource, offset, 0, 0));
    } else if constexpr (sizeof(T) == 8) {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b64(resource, offset, 0, 0));
    } else {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b128(resource, offset, 0, 0));
    }
  }
};

}  // namespace fa
