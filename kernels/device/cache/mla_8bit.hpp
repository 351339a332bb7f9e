// Decode of multi-head latent attention over a cache of 8 bits. As mla.hpp, but codes go from global memory
// into the registers of the wave that multiplies them (memory/codes/own_slice.hpp). A wave's LDS has its part
// of the scores, then its codes of V. A compute unit has room for two workgroups, which hide each other's
// waits.
#pragma once

#include "device/cache/mla.hpp"

namespace fa {

// S^T += K * Q^T of a wave's slice.
template <class B>
FA_DEVICE void add_slice(const typename B::Keys& own, const typename B::Convert& codes,
                         const typename B::Q& query, typename B::Scores& s) {
  typename B::Unit::A keys[B::Keys::kSteps];
  codes.unpacking([&](const auto& unpack) {
#pragma unroll
    for (int i = 0; i < B::Keys::kSteps; ++i) keys[i] = own.key_operand(unpack, i);
  });
#pragma unroll
  for (int i = 0; i < B::Keys::kSteps; ++i) B::Unit::multiply(s[0], keys[i], query.operand(i));
}

// O as StoredRows has its elements: neighbours in head_dim are in different steps.
template <class B>
FA_DEVICE void in_stored_order(typename B::Out& o) {
  typename B::Out stored;
#pragma unroll
  for (int step = 0; step < B::kOutSteps; ++step) B::Unit::settle(o[step]);
#pragma unroll
  for (int f = 0; f < B::kOutSteps * B::Unit::kRows; ++f) {
    stored[f / B::Unit::kRows][f % B::Unit::kRows] = o[f % B::kOutSteps][f / B::kOutSteps];
  }
#pragma unroll
  for (int step = 0; step < B::kOutSteps; ++step) o[step] = stored[step];
}

// Computes and stores the rows from block_row on.
template <class B>
FA_DEVICE void attend_codes(const B& block, int block_row) {
  using Values = typename B::Keys::Values;
  const typename B::Tiles tiles = block.tiles(block_row, B::Unit::kN);
  typename B::Convert codes;
  LatentRows<B> rows(block, block_row, block.params.scale, codes);
  if (tiles.begin < tiles.end) {
    LatentKeys<B> k(block, codes, tiles.begin, tiles.end);
    typename B::Keys next;
    k.load(next, tiles.begin);
    rows.query.wait();
    const typename B::P::Place place(block.wave_lds, block.lane);
    const ScoreParts<B, B::kPartsApart> parts(block.parts(), block);
    for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
      const typename B::Keys own = next.moved();
      if (codes.per_key(false)) codes.of_keys = codes.of_values = own.descales;
      next.descales.forget();
      k.load(next, first + B::kKeys);
      typename B::Scores s;
      rows.softmax.begin(s);
      add_slice<B>(own, codes, rows.query, s);
      wave_barrier();  // V of the tile before has been read
      parts.write(s);
      workgroup_barrier();
      parts.add(s);
      workgroup_barrier();
      own.store_values(block.k_tile, block.lane);
      wave_barrier();
      Values values;
      values.load(typename B::Keys::Stored{block.k_tile}, block.lane);
      rows.scores.descale(s);
      rows.softmax.template update<B::kOutSteps>(s, rows.o, block.lane, tiles.hidden(first), [&] {
        if (tiles.hidden(first) < 0) mask_end(block, mask_of(block), s, first, rows.first);
      });
      rows.scores.weigh(s, rows.o);
      const typename B::P p(place, s);
      const typename Values::Turned turned = values.turned();
      typename Values::Operands operands;
      codes.unpacking([&](const auto& unpack) { turned.unpack(unpack, operands); });
      operands.multiply(rows.o, p);
    }
    rows.scores.finish(rows.o);
    in_stored_order<B>(rows.o);
  }
  store_rows(block, rows.first, rows.o, rows.softmax);
}

// Defines the kernel `name`. head_dim is K's.
#define FA_MLA_8BIT(name, dtype, head_dim)                                                            \
  FA_KERNEL(forward, mla_8bit, dtype, head_dim)                                                       \
  name(const fa::CodedParams params) {                                                                \
    using B = fa::MlaBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::mla_8bit>;                       \
    __attribute__((shared, aligned(16))) static char lds[B::kLdsBytes];                               \
    const fa::Sequence sequence = fa::latent_sequence(params.fwd, __builtin_amdgcn_workgroup_id_z()); \
    const B block(params.fwd, sequence, (fa::LdsBytes)lds);                                           \
    if (block.first_row() < block.rows()) fa::attend_codes(block, block.first_row());                 \
  }

}  // namespace fa
