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

// A thread's unit of 2 * kWidth elements of a head's row: neighbours, or kWidth of each rotated half.
template <DType kDType, int kWidth>
struct AppendedUnit {
  using Element = typename ElementOf<kDType>::Type;
  // Bits: elements without rotation keep them.
  typedef uint16_t Chunk __attribute__((ext_vector_type(kWidth)));

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
    const bool turns = rotates && unit * kWidth < params.rotary_half;
    const bool halves = turns && !params.interleaved;
    const int first = halves ? unit * kWidth : unit * 2 * kWidth;
    // Opaque: the compiler would join two elements to one access, which may be unaligned.
    const int second = here(first + (halves ? params.rotary_half : kWidth));
    Chunk a = load(from + first), b = a;
    const bool has_second = second < params.head_dim;
    if (has_second) b = load(from + second);
    if (turns) rotate(a, b);
    return {first, second, has_second, a, b};
  }

  FA_DEVICE static void write(const Moved& moved, uint16_t* to) {
    store(to + moved.first, moved.a);
    missed_operand_wait<kCurrentGfx>();
    if (moved.has_second) store(to + moved.second, moved.b);
  }

  FA_DEVICE static float number(uint16_t bits) {
    return static_cast<float>(__builtin_bit_cast(Element, bits));
  }

 private:
  FA_DEVICE void rotate(Chunk& a, Chunk& b) const {
    const int64_t last = params.rotary_rows - 1;
    const int64_t row = position < 0 ? 0 : position > last ? last : position;
    const Chunk cos = load(static_cast<const uint16_t*>(params.cos) + row * params.cos_row + unit * kWidth);
    const Chunk sin = load(static_cast<const uint16_t*>(params.sin) + row * params.sin_row + unit * kWidth);
    if (params.interleaved) neighbours(a, b, true);
    opaque(a, b);  // or there would be arithmetic for either order
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      uint16_t first = a[j], second = b[j];
      turn(first, second, cos[j], sin[j]);
      a[j] = first, b[j] = second;
    }
    opaque(a, b);
    if (params.interleaved) neighbours(a, b, false);
  }

  FA_DEVICE static void opaque(Chunk& a, Chunk& b) {
    if constexpr (kWidth > 1) asm volatile("" : "+v"(a), "+v"(b));
  }

  // Splits pairs of neighbours: the first into `a`, the second into `b`. Or joins them.
  FA_DEVICE static void neighbours(Chunk& a, Chunk& b, bool apart) {
    uint16_t x[2 * kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[apart ? j : 2 * j] = a[j], x[apart ? kWidth + j : 2 * j + 1] = b[j];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) a[j] = x[apart ? 2 * j : j], b[j] = x[apart ? 2 * j + 1 : kWidth + j];
  }

  FA_DEVICE static void turn(uint16_t& first, uint16_t& second, uint16_t cos, uint16_t sin) {
#pragma clang fp contract(off)  // bitwise equal to PyTorch's operators in sequence
    const float x = number(first), y = number(second), c = number(cos), s = number(sin);
    first = bits(x * c - y * s);
    second = bits(y * c + x * s);
  }

  FA_DEVICE static uint16_t bits(float number) {
    return __builtin_bit_cast(uint16_t, static_cast<Element>(number));
  }
  FA_DEVICE static Chunk load(const uint16_t* from) { return *reinterpret_cast<const Chunk*>(from); }
  FA_DEVICE static void store(uint16_t* to, Chunk chunk) { *reinterpret_cast<Chunk*>(to) = chunk; }
};

// The rows of a workgroup: new keys or values of a sequence, or its queries.
struct AppendedRows {
  static constexpr int kValues = 1, kQueries = 2;  // parts

  const AppendParams& params;
  const int batch, part;
  const AppendTensor& tensor;
  const int begin;
  const int width;  // half of the elements of a unit

  FA_DEVICE static AppendedRows of(const AppendParams& params) {
    const int part = __builtin_amdgcn_workgroup_id_z();
    const int batch = __builtin_amdgcn_workgroup_id_y();
    return {params,
            batch,
            part,
            params.tensors[part],
            params.cache_seqlens[batch],
            params.vectors ? kAppendWidth : 1};
  }

  FA_DEVICE unsigned units() const { return append_units(params.head_dim, width); }
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
    const bool rotates = rows.rotates();
    if (params.vectors) {
      move(AppendedUnit<kDType, kAppendWidth>{params, rotates, unit, position}, from, to);
    } else {
      move(AppendedUnit<kDType, 1>{params, rotates, unit, position}, from, to);
    }
  }

  template <class Unit>
  FA_DEVICE static void move(const Unit& unit, const uint16_t* from, uint16_t* to) {
    unit.write(unit.read(from), to);
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
