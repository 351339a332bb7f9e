// Writes new keys and values into a cache of 8 bits, in place. Rotates keys and queries on the way.
#pragma once

#include "device/cache/append.hpp"
#include "device/cache/codes.hpp"

namespace fa {

// A code for each element that append.hpp would write: of the element divided by its descale, in fp32.
template <DType kDType, int kWidth>
struct CodedAppend {
  using Unit = AppendedUnit<kDType, kWidth>;
  using Lds = __attribute__((address_space(3))) float*;

  const CodedAppendParams& params;
  const AppendedRows rows;
  const Encoder encoder;
  const Lds lds;

  FA_DEVICE static void run(const CodedAppendParams& params, Lds lds) {
    CodedAppend{params, AppendedRows::of(params.append), Encoder::of(params.format), lds}.all_rows();
  }

 private:
  // In step: all threads of a workgroup reach its barriers.
  FA_DEVICE void all_rows() const {
    const unsigned thread = __builtin_amdgcn_workitem_id_x();
    const unsigned units = rows.units();
    const unsigned together = kAppendThreads / units;  // rows of heads at once
    const unsigned heads = rows.heads(), count = rows.count();
    const unsigned first = __builtin_amdgcn_workgroup_id_x() * together;
    for (unsigned begin = first; begin < count; begin += params.append.blocks * together) {
      const unsigned own = thread / units, i = begin + own;
      const bool works = own < together;
      one(i / heads, i % heads, thread % units, works ? own * units : 0, works && i < count);
    }
  }

  // `first`: the first thread of the row.
  FA_DEVICE void one(int row, int head, int unit, int first, bool there) const {
    const bool queries = rows.part == AppendedRows::kQueries;
    const int64_t position = rows.position(row);
    int64_t place = rows.batch, to_row = row;
    there = there && (queries || rows.locate(position, place, to_row));
    typename Unit::Moved moved{};
    if (there) {
      moved = Unit{params.append, rows.rotates(), unit, position}.read(rows.from(row, head));
    }
    float descale = 1;
    if (queries) {
      if (there) Unit::write(moved, rows.to<uint16_t>(place, to_row, head));
      there = false;
    } else if (params.per_key) {
      descale = own_descale(moved, first);
      if (there && unit == 0) {
        *descale_at(place * descale_batch() + to_row * descale_row() + head * descale_head()) = descale;
      }
    } else if (descale_at(0) != nullptr) {
      descale = *descale_at(rows.batch * descale_batch() + head * descale_head());
      missed_operand_wait<kCurrentGfx>();
    }
    if (!there) return;
    uint8_t* const to = rows.to<uint8_t>(place, to_row, head);
#pragma unroll 1  // a division takes many instructions
    for (int stored = moved.has_second ? 0 : 1, at = moved.first; stored < 2; ++stored) {
      store(to + at, moved.a, descale);
      moved.a = moved.b, at = moved.second;
    }
  }

  FA_DEVICE float* descale_at(int64_t offset) const {
    return (rows.part == 0 ? params.k_descale : params.v_descale) + offset;
  }
  FA_DEVICE int64_t descale_batch() const {
    return rows.part == 0 ? params.k_descale_batch : params.v_descale_batch;
  }
  FA_DEVICE int64_t descale_row() const {
    return rows.part == 0 ? params.k_descale_row : params.v_descale_row;
  }
  FA_DEVICE int64_t descale_head() const {
    return rows.part == 0 ? params.k_descale_head : params.v_descale_head;
  }

  // Of a row's largest magnitude. All of its threads find it.
  FA_DEVICE float own_descale(const typename Unit::Moved& moved, int first) const {
    lds[__builtin_amdgcn_workitem_id_x()] = largest(moved);
    workgroup_barrier();
    float most = kLeastMagnitude;
    for (unsigned i = 0; i < rows.units(); ++i) most = __builtin_fmaxf(most, lds[first + i]);
    workgroup_barrier();
    return most / encoder.largest;
  }

  // NaN counts as 0, and infinity as the type's largest number.
  FA_DEVICE static float largest(const typename Unit::Moved& moved) {
    constexpr uint16_t kInfinity = kDType == DType::fp16 ? 0x7c00 : 0x7f80;
    uint16_t most = 0;
    const auto add = [&](uint16_t bits) {
      const uint16_t magnitude = bits & 0x7fff;
      const uint16_t finite = magnitude < kInfinity ? magnitude : kInfinity - 1;
      const uint16_t counted = magnitude > kInfinity ? 0 : finite;
      most = most > counted ? most : counted;
    };
#pragma unroll
    for (int j = 0; j < kWidth; ++j) add(moved.a[j]), add(moved.b[j]);
    return Unit::number(most);
  }

  FA_DEVICE void store(uint8_t* to, typename Unit::Chunk numbers, float descale) const {
    typedef uint8_t Codes __attribute__((ext_vector_type(kWidth)));
    Codes codes;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) codes[j] = encoder.code(Unit::number(numbers[j]), descale);
    *reinterpret_cast<Codes*>(to) = codes;
  }
};

template <DType kDType>
FA_DEVICE void append_8bit(const CodedAppendParams& params, __attribute__((address_space(3))) float* lds) {
  if (params.append.vectors) {
    CodedAppend<kDType, kAppendWidth>::run(params, lds);
  } else {
    CodedAppend<kDType, 1>::run(params, lds);
  }
}

// Defines the kernel `name`.
#define FA_APPEND_8BIT(name, dtype)                                                         \
  extern "C" __attribute__((global))                                                        \
  __attribute__((amdgpu_flat_work_group_size(fa::kAppendThreads, fa::kAppendThreads))) void \
  name(const fa::CodedAppendParams params) {                                                \
    __attribute__((shared)) static float lds[fa::kAppendThreads];                           \
    fa::append_8bit<dtype>(params, (__attribute__((address_space(3))) float*)lds);          \
  }

}  // namespace fa
