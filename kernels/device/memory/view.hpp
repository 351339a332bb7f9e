// Views of rows in global memory, for loading tiles. Rows come in aligned groups: `group(row)` is the place
// of a row's group, and `read(group, row, byte)` reads from one of its rows.
#pragma once

#include "device/arch/device.hpp"

namespace fa {

// The rows of one batch entry and head, `row_bytes` apart. The elements of a row are contiguous.
struct HeadRows {
  const char* base;
  int64_t row_bytes;
  int rows;
};

// Up to kRows rows from row `first` on, through a buffer resource. Reads beyond the last row return zero and
// writes there are dropped, so ragged tiles need no special code. Offsets have 32 bits: kRows * row_bytes <
// 2^32 (kMaxRowStride in call/params.hpp). kShort: the stride is below kMaxRowStride, so 24-bit
// multiplications place rows.
template <int kRows, int kRowBytes, uint32_t kWord3, bool kShort = false>
struct BufferView {
  struct Group {};
  static constexpr bool kPlaced =
      kShort;  // offset_of is short, and rows are at multiples of row_bytes from it

  __amdgpu_buffer_rsrc_t resource;
  uint32_t row_bytes;

  // `bytes`: from `base` to the end of the last row. With 0, all reads return zero.
  struct Part {
    const char* base;
    uint32_t bytes, row_bytes;
  };

  // `last_bytes`: bytes of the last row.
  FA_DEVICE static Part part_of(const HeadRows& all, int first, int last_bytes = kRowBytes) {
    const uint32_t row_bytes = static_cast<uint32_t>(all.row_bytes);
    const int left = all.rows - first;
    const int rows = left < kRows ? left : kRows;
    const int used = here_uniform(static_cast<int>((rows - 1) * row_bytes + last_bytes));
    const uint32_t bytes = rows > 0 ? used : 0;
    return {all.base + first * all.row_bytes, bytes, row_bytes};
  }

  FA_DEVICE explicit BufferView(const Part& part)
      : resource(__builtin_amdgcn_make_buffer_rsrc(const_cast<char*>(part.base), 0,
                                                   static_cast<int>(part.bytes), kWord3)),
        row_bytes(part.row_bytes) {}
  FA_DEVICE BufferView(const HeadRows& all, int first, int last_bytes = kRowBytes)
      : BufferView(part_of(all, first, last_bytes)) {}

  FA_DEVICE Group group(int) const { return {}; }

  template <class T>
  FA_DEVICE T read(Group, int row, int byte) const {
    return read<T>(row, byte);
  }

  FA_DEVICE int offset_of(int row, int byte) const {
    if constexpr (kShort) {
      const unsigned elements = row_bytes / 2 % (1u << 24);
      return static_cast<int>((static_cast<unsigned>(row) * elements + static_cast<unsigned>(byte) / 2) * 2);
    }
    return static_cast<int>(row * row_bytes + byte);
  }

  template <class T>
  FA_DEVICE T read(int row, int byte) const {
    return read_at<T>(offset_of(row, byte));
  }

  template <class T>
  FA_DEVICE T read_at(int offset) const {
    if constexpr (sizeof(T) == 1) {
      return __builtin_amdgcn_raw_buffer_load_b8(resource, offset, 0, 0);
    } else if constexpr (sizeof(T) == 2) {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b16(resource, offset, 0, 0));
    } else if constexpr (sizeof(T) == 4) {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b32(resource, offset, 0, 0));
    } else if constexpr (sizeof(T) == 8) {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b64(resource, offset, 0, 0));
    } else {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b128(resource, offset, 0, 0));
    }
  }

  template <class T>
  FA_DEVICE void write(int row, int byte, T value) const {
    write_at(offset_of(row, byte), value);
  }

  template <class T>
  FA_DEVICE void write_at(int offset, T value) const {
    if constexpr (sizeof(T) == 4) {
      __builtin_amdgcn_raw_buffer_store_b32(__builtin_bit_cast(uint32_t, value), resource, offset, 0, 0);
    } else if constexpr (sizeof(T) == 8) {
      __builtin_amdgcn_raw_buffer_store_b64(__builtin_bit_cast(u32x2, value), resource, offset, 0, 0);
    } else {
      __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(u32x4, value), resource, offset, 0, 0);
    }
  }
};

// Packed rows of several heads from `first` on: row r is head r % group of query r / group. Rows beyond the
// last read as the last.
struct PackedView {
  const char* base;
  int64_t row_bytes, head_bytes;
  int group, first, rows;

  template <class T>
  FA_DEVICE T read(int row, int byte) const {
    const unsigned packed = static_cast<unsigned>(first + row < rows ? first + row : rows - 1);
    const unsigned query = packed / static_cast<unsigned>(group);
    const unsigned head = packed - query * static_cast<unsigned>(group);
    return *reinterpret_cast<const T*>(base + query * row_bytes + head * head_bytes + byte);
  }
};

// One row.
struct RowAt {
  struct Group {};
  const char* at;

  template <class T>
  FA_DEVICE T read(Group, int, int byte) const {
    return *reinterpret_cast<const T*>(at + byte);
  }
};

// Rows from `first` on, which is at `at`. `more`: rows after it. Those beyond read as the last.
struct RowsFrom {
  struct Group {};
  const char* at;
  uint32_t row_bytes;
  int first;
  unsigned more;

  template <class T>
  FA_DEVICE T read(Group, int row, int byte) const {
    const unsigned after = static_cast<unsigned>(row - first);
    const uint64_t below = static_cast<uint64_t>(after < more ? after : more) * row_bytes;
    return *reinterpret_cast<const T*>(at + below + byte);
  }
};

// Rows of one sequence and head, scattered over pages of `page` rows (a multiple of 16): row j is row j %
// page of page table[j / page]. Page numbers beyond the last read as the last. There is at least one row and
// one page.
struct PagedRows {
  const char* base;
  int64_t row_bytes;
  int64_t page_bytes;
  const int32_t* table;
  int rows;
  int page;
  int last_page;
};

// Paged rows from row `first`, a multiple of 16, on. Rows beyond the last read as the last, because memory
// beyond may hold anything, including NaN.
struct PagedView {
  static constexpr bool kPlaced = false;
  struct Group {
    const char* page;
    int first;  // first row of the page
  };

  PagedRows rows;
  int first;

  FA_DEVICE Group group(int row) const {
    const unsigned index = static_cast<unsigned>(inside(row)) / static_cast<unsigned>(rows.page);
    const unsigned last = static_cast<unsigned>(rows.last_page);
    const unsigned found = static_cast<unsigned>(rows.table[index]);
    const int64_t page = found < last ? found : last;
    return {rows.base + page * rows.page_bytes, static_cast<int>(index) * rows.page};
  }

  // In two parts: the table lookup, which may come long before, and the address computed from it.
  FA_DEVICE uint32_t look_up(int row) const { return static_cast<uint32_t>(rows.table[index_of(row)]); }
  FA_DEVICE const char* at(Group group, int row) const {
    return group.page + (inside(row) - group.first) * rows.row_bytes;
  }
  // Rows after `row`, at which there is one.
  FA_DEVICE unsigned below(int row) const { return static_cast<unsigned>(rows.rows - 1 - inside(row)); }
  FA_DEVICE Group group(int row, uint32_t found) const {
    const uint32_t last = static_cast<uint32_t>(rows.last_page);
    const int64_t page = found < last ? found : last;
    return {rows.base + page * rows.page_bytes, static_cast<int>(index_of(row)) * rows.page};
  }

  template <class T>
  FA_DEVICE T read(Group group, int row, int byte) const {
    return *reinterpret_cast<const T*>(group.page + (inside(row) - group.first) * rows.row_bytes + byte);
  }

 private:
  FA_DEVICE unsigned index_of(int row) const {
    return static_cast<unsigned>(inside(row)) / static_cast<unsigned>(rows.page);
  }
  FA_DEVICE int inside(int row) const { return first + row < rows.rows ? first + row : rows.rows - 1; }
};

}  // namespace fa
