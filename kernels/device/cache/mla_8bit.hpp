// Decode of multi-head latent attention over a cache of 8 bits. As mla.hpp, but each code is unpacked once:
// in the registers of the wave that multiplies it (memory/codes/own_slice.hpp), or on its way into that
// wave's LDS (memory/codes/staged_slice.hpp). In the former case a wave's LDS has its part of the scores,
// then its V. A compute unit has room for two workgroups, which hide each other's waits.
// In registers, the products of O and of the next scores are one run, in which a wave's priority rises: a
// wave that has the matrix unit keeps it, while the other exchanges scores and takes exponentials.
#pragma once

#include "device/cache/mla.hpp"
#include "device/memory/codes/held_query.hpp"
#include "device/memory/codes/staged_query.hpp"

namespace fa {

// O as StoredRows has its elements: neighbours in head_dim are in different steps.
template <class B>
FA_DEVICE void in_stored_order(typename B::Out& o) {
  typename B::Out stored;
#pragma unroll
  for (int step = 0; step < B::kOutSteps; ++step) B::Unit::settle(o[step]);
#pragma unroll
  for (int f = 0; f < B::kOutSteps * B::Unit::kRows; ++f) {
    constexpr int kWidth = B::kNeighbours, kRows = B::Unit::kRows;
    stored[f / kRows][f % kRows] = o[f / (kRows * kWidth) * kWidth + f % kWidth][f / kWidth % kRows];
  }
#pragma unroll
  for (int step = 0; step < B::kOutSteps; ++step) o[step] = stored[step];
}

// The largest of all waves' numbers, through LDS.
template <class B>
FA_DEVICE float largest_of_waves(const B& block, float own) {
  using Floats = __attribute__((address_space(3))) float*;
  const Floats all = (Floats)block.v_tile;
  all[block.wave] = own;
  workgroup_barrier();
  float most = own;
#pragma unroll
  for (int i = 1; i < B::kSlices; ++i) most = __builtin_fmaxf(most, all[block.wave ^ i]);
  workgroup_barrier();  // before the tiles come
  return most;
}

template <class B>
using SliceQuery = HeldQuery<typename B::Unit, B::kDType, B::Q::kSteps>;

template <class B, class Scores>
FA_DEVICE LatentRows<B> latent_rows(int block_row, const SliceQuery<B>& held, const Scores& scores) {
  typename B::Q query;
  const QuerySign sign(scores.scale());
#pragma unroll
  for (int i = 0; i < B::Q::kSteps; ++i) query.held.step[i].column[0] = held.operand(i);
  if (!sign.none()) {
#pragma unroll
    for (int i = 0; i < B::Q::kSteps; ++i) {
      auto& operand = query.held.step[i].column[0];
      operand = here(sign.apply(here(operand)));
    }
  }
  return LatentRows<B>(block_row, query, scores.scale());
}

// Computes and stores the rows from block_row on. The first codes are in flight while Q is converted.
template <class B>
FA_DEVICE void attend_codes(const B& block, int block_row) {
  __builtin_amdgcn_s_setprio(2);  // its first loads go before another workgroup's exponentials
  const typename B::Tiles tiles = block.tiles(block_row, B::Unit::kN);
  typename B::Convert codes;
  codes.begin(coded_params(block.params));
  SliceQuery<B> held(latent_queries(block, block_row), block.lane,
                     [&](int byte) { return block.query_byte(byte); });
  LatentKeys<B> k(block, codes, tiles.begin, tiles.end);
  typename B::Keys next;
  k.load_first(next, tiles.begin, latent_queries(block, block_row).base);
  held.fit_words(block.lane, [&](float own) { return largest_of_waves(block, own); });
  CodedScores<B, SliceQuery<B>> scores(block, held);
  scores.codes = &codes;
  LatentRows<B> rows = latent_rows<B>(block_row, held, scores);
  if (tiles.begin < tiles.end) {
    const typename B::P::Place place(block.wave_lds, block.lane);
    const ScoreParts<B, B::kPartsApart> parts(block.parts(), block);
    for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
      const auto load_next = [&] {
        if (codes.per_key(false)) codes.of_keys = codes.of_values = next.descales.now();
        next.descales.forget();
        k.load(next, first + B::kKeys);
      };
      typename B::Keys copy;
      if constexpr (!B::kLateLoads) {
        copy = next.moved();
        load_next();
      }
      const typename B::Keys& own = B::kLateLoads ? next : copy;
      typename B::Keys::Operands keys;
      typename B::Scores s;
      rows.softmax.begin(s);
      constexpr int kLast = B::Keys::kSteps - 1;
      wave_barrier();  // V of the tile before has been read
      codes.unpacking([&](const auto& unpack) {
        // LLVM 22 counts one wait state too few after products on the way from one branch into another, which
        // is never taken.
        asm volatile("s_nop 0");
        __builtin_amdgcn_s_setprio(3);
        __builtin_amdgcn_sched_barrier(0);
#pragma unroll
        for (int n = 0; n < kLast; ++n) {
          const int i = (n + kLast / 2) % kLast;
          keys.of[i] = own.operand(unpack, i);
          B::Unit::multiply(s[0], keys.of[i], rows.query.operand(i));
          if (i == kLast - 1) keys.store_values(block.k_tile, block.lane, 1);
        }
        keys.of[kLast] = own.operand(unpack, kLast);
      });
      B::Unit::multiply(s[0], keys.of[kLast], rows.query.operand(kLast));
      __builtin_amdgcn_s_setprio(0);
      parts.write(s);
      if constexpr (B::kLateLoads) load_next();
      workgroup_barrier();
      parts.add(s);
      workgroup_barrier();
      keys.store_values(block.k_tile, block.lane, 0);
      wave_barrier();
      typename B::Keys::Values values;
      values.load(block.k_tile, block.lane);
      scores.descale(s);
      rows.softmax.template update<B::kOutSteps>(s, rows.o, block.lane, tiles.hidden(first), [&] {
        if (tiles.hidden(first) < 0) mask_end(block, mask_of(block), s, first, rows.first);
      });
      __builtin_amdgcn_s_setprio(1);
      scores.weigh(s, rows.o);
      const typename B::P p(place, s);
      values.operands().multiply(rows.o, p);
    }
    scores.finish(rows.o);
    in_stored_order<B>(rows.o);
  }
  store_rows(block, rows.first, rows.o, rows.softmax);
}

template <class B>
using RowsOfQuery = StagedQuery<typename B::Unit, B::kDType, B::Q::kSteps, typename B::Keys::Tile>;

// Likewise, with codes unpacked on their way into LDS. For short code, Q is converted there, and the loop
// begins a tile early, so all tiles are loaded by the same code.
template <class B>
FA_DEVICE void attend_rows_of_codes(const B& block, int block_row) {
  const typename B::Tiles tiles = block.tiles(block_row, B::Unit::kN);
  typename B::Convert codes;
  RowsOfQuery<B> staged(block.k_tile, latent_queries(block, block_row), block.lane,
                        [&](int byte) { return block.query_byte(byte); });
  staged.fit_words(block.lane, [&](float own) { return largest_of_waves(block, own); });
  CodedScores<B, RowsOfQuery<B>> scores(block, staged);
  scores.begin(codes);
  LatentRows<B> rows(block_row, staged.template operands<typename B::Q>(QuerySign(scores.scale())),
                     scores.scale());
  if (tiles.begin < tiles.end) {
    LatentKeys<B> k(block, codes, tiles.begin, tiles.end);
    typename B::Keys next;
    const typename B::P::Place place(block.wave_lds, block.lane);
    int parts_at = 0;
    // Opaque, or the first loads would have code of their own.
    int first = here_uniform(tiles.begin - 2 * B::kKeys);
    do {
      first += B::kKeys;
      const bool has_tile = first >= tiles.begin;
      wave_barrier();  // Q, and V of the tile before, have been read
      if (has_tile) {
        if (codes.per_key(false)) codes.of_keys = codes.of_values = next.descales.now();
        next.store(block.k_tile, codes, block.lane);
      }
      next.descales.forget();
      k.load(next, first + B::kKeys);
      if (!has_tile) continue;
      wave_barrier();
      typename B::Scores s;
      rows.softmax.begin(s);
#pragma unroll
      for (int i = 0; i < B::Q::kSteps; ++i) {
        B::Unit::multiply(s[0], nth_key_operand(block, i, 0), rows.query.operand(i));
      }
      const ScoreParts<B, B::kPartsApart> parts(block.parts() + parts_at, block);
      parts.write(s);
      workgroup_barrier();
      parts.add(s);
      parts_at = B::kPartsLds - parts_at;
      scores.descale(s);
      rows.softmax.template update<B::kOutSteps>(s, rows.o, block.lane, tiles.hidden(first), [&] {
        if (tiles.hidden(first) < 0) mask_end(block, mask_of(block), s, first, rows.first);
      });
      scores.weigh(s, rows.o);
      const typename B::P p(place, s);
      typename B::Keys::Values(block.k_tile, block.lane).multiply(rows.o, p);
    } while (first + B::kKeys < tiles.end);
    scores.finish(rows.o);
    in_stored_order<B>(rows.o);
  }
  store_rows(block, rows.first, rows.o, rows.softmax);
}

template <class B>
FA_DEVICE void attend_8bit(const B& block, int block_row) {
  if constexpr (B::kSlicing == Slices::registers) {
    attend_codes(block, block_row);
  } else {
    attend_rows_of_codes(block, block_row);
  }
}

// Defines the kernel `name`. head_dim is K's.
#define FA_MLA_8BIT(name, dtype, head_dim)                                                            \
  FA_KERNEL(forward, mla_8bit, dtype, head_dim)                                                       \
  name(const fa::CodedParams params) {                                                                \
    using B = fa::MlaBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::mla_8bit>;                       \
    __attribute__((shared, aligned(16))) static char lds[B::kLdsBytes];                               \
    const fa::Sequence sequence = fa::latent_sequence(params.fwd, __builtin_amdgcn_workgroup_id_z()); \
    const B block(params.fwd, sequence, (fa::LdsBytes)lds);                                           \
    if (block.first_row() < block.rows()) fa::attend_8bit(block, block.first_row());                  \
  }

}  // namespace fa
