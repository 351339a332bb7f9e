// Copies a cache of 8 bits to elements of 16 bits, dense.
#pragma once

#include "device/arch/compiler.hpp"
#include "device/arch/current.hpp"
#include "device/arch/dtype.hpp"
#include "device/cache/append.hpp"
#include "device/cache/codes.hpp"
#include "device/call/sequence.hpp"

namespace fa {

// A thread has kWidenWidth neighbours of a head's row in one access, or kWidenOdd one by one.
template <DType kDType>
struct Widen {
  using Element = typename ElementOf<kDType>::Type;
  typedef uint8_t Codes __attribute__((ext_vector_type(kWidenWidth)));
  template <int kCount>
  using Elements = Element __attribute__((ext_vector_type(kCount)));

  const WidenParams& params;
  const WidenTensor& tensor;
  const int batch;
  const int keys;

  FA_DEVICE static void run(const WidenParams& params) {
    const int batch = __builtin_amdgcn_workgroup_id_y();
    const int used = params.seqused_k == nullptr ? params.seqlen_k : params.seqused_k[batch];
    Widen{params, params.tensors[__builtin_amdgcn_workgroup_id_z()], batch, cut(used, 0, params.seqlen_k)}
        .all_rows();
  }

 private:
  FA_DEVICE void all_rows() const {
    const unsigned thread = __builtin_amdgcn_workitem_id_x();
    const unsigned units = widen_units(params.head_dim, params.vectors);
    const unsigned together = kWidenThreads / units;  // rows of heads at once
    if (thread >= together * units) return;
    const unsigned heads = params.nheads_k, count = keys * heads;
    const unsigned first = __builtin_amdgcn_workgroup_id_x() * together + thread / units;
    for (unsigned i = first; i < count; i += params.blocks * together)
      one(i / heads, i % heads, thread % units * (params.vectors ? kWidenWidth : kWidenOdd));
  }

  // Counts are unsigned: a product with a stride then takes fewer instructions.
  FA_DEVICE void one(unsigned row, unsigned head, unsigned element) const {
    int found = batch;
    unsigned from_row = row;
    if (params.block_table != nullptr) {
      const unsigned page = params.page, at = row / page;
      found = params.block_table[batch * params.table_batch + at];
      from_row = row - at * page;
    } else if (params.cache_batch_idx != nullptr) {
      found = params.cache_batch_idx[batch];
    }
    const unsigned place = cut(found, 0, params.batch_cache - 1);
    const uint8_t* from = static_cast<const uint8_t*>(tensor.from) + place * tensor.from_batch +
                          from_row * tensor.from_row + head * tensor.from_head + element;
    Element* to = static_cast<Element*>(tensor.to) + batch * tensor.to_batch + row * tensor.to_row +
                  head * tensor.to_head + element;
    const float descale = descale_of(place, from_row, head);
    if (params.vectors) {
      *reinterpret_cast<Elements<kWidenWidth>*>(to) =
          elements<kWidenWidth>(*reinterpret_cast<const Codes*>(from), descale);
    } else {
      // Opaque: the compiler would join two elements to one access, which may be unaligned.
      const unsigned second = here(1u);
      const bool has_second = second < params.head_dim - element;
      const uint8_t codes[kWidenOdd] = {from[0], has_second ? from[second] : uint8_t{0}};
      const Elements<kWidenOdd> found = elements<kWidenOdd>(codes, descale);
      to[0] = found[0];
      missed_operand_wait<kCurrentGfx>();
      if (has_second) to[second] = found[1];
    }
  }

  FA_DEVICE float descale_of(unsigned place, unsigned row, unsigned head) const {
    if (tensor.descale == nullptr) return 1;
    const int64_t at = params.per_key ? place * tensor.descale_batch + row * tensor.descale_row
                                      : batch * tensor.descale_batch;
    return tensor.descale[at + head * tensor.descale_head];
  }

  // Of both kinds of formats numbers first: their products and rounding are code once.
  template <int kCount, class Given>
  FA_DEVICE Elements<kCount> elements(const Given& codes, float descale) const {
    float numbers[kCount];
    if (static_cast<CodeFormat>(params.format) == CodeFormat::int8) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) numbers[j] = static_cast<float>(static_cast<int8_t>(codes[j]));
    } else {
      const Decoder decoder = Decoder::of(params.format);
#pragma unroll
      for (int j = 0; j < kCount; ++j) numbers[j] = decoder.number(codes[j]);
    }
    Elements<kCount> found;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      // Opaque: RDNA's compiler would add 0 to the product, which turns -0 into 0.
      found[j] = static_cast<Element>(here(numbers[j] * descale));
    }
    return found;
  }
};

// Defines the kernel `name`.
#define FA_WIDEN(name, dtype)                                                             \
  extern "C" __attribute__((global))                                                      \
  __attribute__((amdgpu_flat_work_group_size(fa::kWidenThreads, fa::kWidenThreads))) void \
  name(const fa::WidenParams params) {                                                    \
    fa::Widen<dtype>::run(params);                                                        \
  }

}  // namespace fa
