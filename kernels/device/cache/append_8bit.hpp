// Writes new keys and values into a cache of 8 bits, in place. Rotates keys and queries on the way.
#pragma once

#include "device/cache/append.hpp"
#include "device/cache/codes.hpp"

namespace fa {

// A code for each element that append.hpp would write: of the element divided by its descale, in fp32.
template <DType kDType>
struct CodedAppend {
  using Unit = AppendedUnit<kDType>;
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
    const Unit own{params.append, rows.rotates(), unit, position};
    typename Unit::Moved moved{};
    if (there) moved = own.read(rows.from(row, head));
    float descale = 1;
    if (queries) {
      if (there) own.write(moved, rows.to<uint16_t>(place, to_row, head));
      there = false;
    } else if (params.per_key) {
      descale = own_descale(own, moved, first);
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
      store(own, to + at, moved.a, descale);
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
  FA_DEVICE float own_descale(const Unit& own, typename Unit::Moved& moved, int first) const {
    lds[__builtin_amdgcn_workitem_id_x()] = largest(own, moved);
    workgroup_barrier();
    float most = kLeastMagnitude;
    for (unsigned i = 0; i < rows.units(); ++i) most = __builtin_fmaxf(most, lds[first + i]);
    workgroup_barrier();
    return most / encoder.largest;
  }

  // NaN counts as 0, and infinity as the type's largest number.
  FA_DEVICE static float largest(const Unit& own, typename Unit::Moved& moved) {
    constexpr uint32_t kInfinity = kDType == DType::fp16 ? 0x7c00 : 0x7f80;
    uint32_t most = 0;
    const auto add = [&](uint32_t bits) {
      const uint32_t magnitude = bits & 0x7fff;
      const uint32_t finite = here(magnitude < kInfinity ? magnitude : kInfinity - 1);  // no v_minmax_u32
      const uint32_t counted = magnitude > kInfinity ? 0 : finite;
      most = most > counted ? most : counted;
    };
    own.words([&] { add(moved.a[0]), add(moved.a[0] >> 16), add(moved.b[0]), add(moved.b[0] >> 16); },
              moved.a, moved.b);
    return Unit::number(most);
  }

  FA_DEVICE void store(const Unit& own, uint8_t* to, typename Unit::Chunk numbers, float descale) const {
    u32x2 codes{};
    own.words(
        [&] {
          const auto code = [&](uint32_t bits) { return encoder.code(Unit::number(bits), descale); };
          const uint32_t pair = code(numbers[0]) | code(numbers[0] >> 16) << 8;
          codes = {codes[1] << 16 | codes[0] >> 16, pair << 16 | codes[1] >> 16};
        },
        numbers);
    if (params.append.vectors) {
      *reinterpret_cast<u32x2*>(to) = codes;
    } else {
      *to = static_cast<uint8_t>(codes[1] >> 16);
    }
  }
};

// Defines the kernel `name`.
#define FA_APPEND_8BIT(name, dtype)                                                         \
  extern "C" __attribute__((global))                                                        \
  __attribute__((amdgpu_flat_work_group_size(fa::kAppendThreads, fa::kAppendThreads))) void \
  name(const fa::CodedAppendParams params) {                                                \
    __attribute__((shared)) static float lds[fa::kAppendThreads];                           \
    fa::CodedAppend<dtype>::run(params, (fa::CodedAppend<dtype>::Lds)lds);                  \
  }

}  // namespace fa
