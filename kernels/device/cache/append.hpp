// Writes new keys and values into a cache, in place. Rotates keys and queries on the way.
#pragma once

#include "device/arch/compiler.hpp"
#include "device/arch/current.hpp"
#include "device/arch/device.hpp"
#include "device/arch/dtype.hpp"
#include "device/call/params.hpp"

namespace fa {

template <DType kDType>
struct ElementOf {
  using Type = _Float16;
};
template <>
struct ElementOf<DType::bf16> {
  using Type = __bf16;
};

// Half of the elements that a thread moves at once.
FA_DEVICE int append_width(const AppendParams& params) { return params.vectors ? kAppendWidth : 1; }

// A thread's unit of 2 * width elements of a head's row: neighbours, or `width` of each rotated half. Loops
// in place of copies, for short code.
template <DType kDType>
struct AppendedUnit {
  using Element = typename ElementOf<kDType>::Type;
  // Pairs of elements, as bits: elements without rotation keep them. Without `vectors` there is one element,
  // the first.
  using Chunk = u32x4;
  static constexpr int kWords = kAppendWidth / 2;

  const AppendParams& params;
  const bool rotates;  // the part
  const int unit;
  const int64_t position;

  // The elements from `first` on are `a`; those from `second` on are `b`, unless the row ends before.
  struct Moved {
    int first, second;
    bool has_second;
    Chunk a, b;
  };

  // The unit of a row, rotated.
  FA_DEVICE Moved read(const uint16_t* from) const {
    const int width = append_width(params);
    const bool turns = rotates && unit * width < params.rotary_half;
    const bool halves = turns && !params.interleaved;
    const int first = halves ? unit * width : unit * 2 * width;
    // Opaque: the compiler would join two elements to one access, which may be unaligned.
    const int second = here(first + (halves ? params.rotary_half : width));
    Chunk a = load(from + first), b = a;
    const bool has_second = second < params.head_dim;
    if (has_second) b = load(from + second);
    if (turns) rotate(a, b);
    return {first, second, has_second, a, b};
  }

  FA_DEVICE void write(const Moved& moved, uint16_t* to) const {
    store(to + moved.first, moved.a);
    missed_operand_wait<kCurrentGfx>();
    if (moved.has_second) store(to + moved.second, moved.b);
  }

  FA_DEVICE static float number(uint32_t bits) {
    return static_cast<float>(__builtin_bit_cast(Element, static_cast<uint16_t>(bits)));
  }

  // Calls `each`, which works on the first word of chunks, for every word with elements. Chunks keep their
  // order.
  template <class Each, class... Chunks>
  FA_DEVICE void words(const Each& each, Chunks&... chunks) const {
#pragma unroll 1
    for (int i = 0; i < kWords; ++i) {
      each();
      if (!params.vectors) break;
      ((chunks = __builtin_shufflevector(chunks, chunks, 1, 2, 3, 0)), ...);
    }
  }

 private:
  FA_DEVICE void rotate(Chunk& a, Chunk& b) const {
    const int64_t last = params.rotary_rows - 1;
    const int64_t row = position < 0 ? 0 : position > last ? last : position;
    const int at = unit * append_width(params);
    Chunk cos = load(static_cast<const uint16_t*>(params.cos) + row * params.cos_row + at);
    Chunk sin = load(static_cast<const uint16_t*>(params.sin) + row * params.sin_row + at);
    const bool mixed = params.interleaved && params.vectors;
    if (mixed) neighbours(a, b, true);
    words(
        [&] {
          const uint32_t x = a[0], y = b[0], c = cos[0], s = sin[0];
          uint32_t first[2], second[2];
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int shift = 16 * j;
            turn(x >> shift, y >> shift, c >> shift, s >> shift, first[j], second[j]);
          }
          a[0] = first[0] | first[1] << 16, b[0] = second[0] | second[1] << 16;
        },
        a, b, cos, sin);
    if (mixed) neighbours(a, b, false);
  }

  // Splits pairs of neighbours: the first into `a`, the second into `b`. Or joins them.
  FA_DEVICE static void neighbours(Chunk& a, Chunk& b, bool apart) {
    constexpr uint32_t kLow = 0x05040100, kHigh = 0x07060302;
    const Chunk x = a, y = b;
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
      const Chunk& from = j < kWords / 2 ? x : y;
      Chunk& to = j < kWords / 2 ? a : b;
      const int at = j * 2 % kWords;
      if (apart) {
        a[j] = __builtin_amdgcn_perm(from[at + 1], from[at], kLow);
        b[j] = __builtin_amdgcn_perm(from[at + 1], from[at], kHigh);
      } else {
        to[at] = __builtin_amdgcn_perm(y[j], x[j], kLow);
        to[at + 1] = __builtin_amdgcn_perm(y[j], x[j], kHigh);
      }
    }
  }

  FA_DEVICE static void turn(uint32_t a, uint32_t b, uint32_t cos, uint32_t sin, uint32_t& first,
                             uint32_t& second) {
#pragma clang fp contract(off)  // bitwise equal to PyTorch's operators in sequence
    const float x = number(a), y = number(b), c = number(cos), s = number(sin);
    first = bits(x * c - y * s);
    second = bits(y * c + x * s);
  }

  FA_DEVICE static uint32_t bits(float number) {
    return __builtin_bit_cast(uint16_t, static_cast<Element>(number));
  }
  FA_DEVICE Chunk load(const uint16_t* from) const {
    if (params.vectors) return *reinterpret_cast<const Chunk*>(from);
    return {*from, 0, 0, 0};
  }
  FA_DEVICE void store(uint16_t* to, Chunk chunk) const {
    if (params.vectors) {
      *reinterpret_cast<Chunk*>(to) = chunk;
    } else {
      *to = static_cast<uint16_t>(chunk[0]);
    }
  }
};

// The rows of a workgroup: new keys or values of a sequence, or its queries.
struct AppendedRows {
  static constexpr int kValues = 1, kQueries = 2;  // parts

  const AppendParams& params;
  const int batch, part;
  const AppendTensor& tensor;
  const int begin;

  FA_DEVICE static AppendedRows of(const AppendParams& params) {
    const int part = __builtin_amdgcn_workgroup_id_z();
    const int batch = __builtin_amdgcn_workgroup_id_y();
    return {params, batch, part, params.tensors[part], params.cache_seqlens[batch]};
  }

  FA_DEVICE unsigned units() const { return append_units(params.head_dim, append_width(params)); }
  FA_DEVICE unsigned heads() const { return part == kQueries ? params.nheads : params.nheads_k; }
  FA_DEVICE unsigned count() const { return (part == kQueries ? params.rows_q : params.rows_new) * heads(); }
  FA_DEVICE bool rotates() const { return part != kValues && params.cos != nullptr; }

  FA_DEVICE int64_t position(int row) const {
    return int64_t{begin} + (part == kQueries && !params.advances ? 0 : row);
  }
  FA_DEVICE const uint16_t* from(int row, int head) const {
    return static_cast<const uint16_t*>(tensor.from) + batch * tensor.from_batch + row * tensor.from_row +
           head * tensor.from_head;
  }
  // `Element` has the size of the destination's.
  template <class Element>
  FA_DEVICE Element* to(int64_t place, int64_t row, int head) const {
    return static_cast<Element*>(tensor.to) + place * tensor.to_batch + row * tensor.to_row +
           head * tensor.to_head;
  }

  // The place of a position's key in the cache. False if it is outside.
  FA_DEVICE bool locate(int64_t position, int64_t& place, int64_t& row) const {
    if (position < 0 || position >= params.capacity) return false;
    row = position;
    if (params.block_table != nullptr) {
      const int at = static_cast<int>(position);
      place = params.block_table[batch * params.table_batch + at / params.page];
      row = at % params.page;
    } else if (params.cache_batch_idx != nullptr) {
      place = params.cache_batch_idx[batch];
    }
    return place >= 0 && place < params.batch_cache;
  }
};

template <DType kDType>
struct Append {
  const AppendedRows rows;

  FA_DEVICE static void run(const AppendParams& params) { Append{AppendedRows::of(params)}.all_rows(); }

 private:
  FA_DEVICE void all_rows() const {
    const unsigned thread = __builtin_amdgcn_workitem_id_x();
    const unsigned units = rows.units();
    const unsigned together = kAppendThreads / units;  // rows of heads at once
    if (thread >= together * units) return;
    const unsigned heads = rows.heads(), count = rows.count();
    const unsigned first = __builtin_amdgcn_workgroup_id_x() * together + thread / units;
    for (unsigned i = first; i < count; i += rows.params.blocks * together)
      one(i / heads, i % heads, thread % units);
  }

  FA_DEVICE void one(int row, int head, int unit) const {
    const AppendParams& params = rows.params;
    const int64_t position = rows.position(row);
    int64_t place = rows.batch, to_row = row;
    if (rows.part != AppendedRows::kQueries && !rows.locate(position, place, to_row)) return;
    const uint16_t* from = rows.from(row, head);
    uint16_t* to = rows.to<uint16_t>(place, to_row, head);
    const AppendedUnit<kDType> moved{params, rows.rotates(), unit, position};
    moved.write(moved.read(from), to);
  }
};

// Defines the kernel `name`.
#define FA_APPEND(name, dtype)                                                              \
  extern "C" __attribute__((global))                                                        \
  __attribute__((amdgpu_flat_work_group_size(fa::kAppendThreads, fa::kAppendThreads))) void \
  name(const fa::AppendParams params) {                                                     \
    fa::Append<dtype>::run(params);                                                         \
  }

}  // namespace fa
