// Decode of multi-head latent attention over rows that hold their scales (kScaledRowBytes): as mla_8bit.hpp,
// with codes unpacked in registers. A wave has the codes of one scale of each key, and applies it in fp32: to
// its parts of scores, and to the probabilities on their way to its elements of O. The rest of K is
// multiplied in bf16, beside these parts.
//
// A lane has the scale of one key and scores of 16, so scales pass through the wave's LDS, in the place of
// the first half of V.
#pragma once

#include "device/cache/mla_8bit.hpp"

namespace fa {

// Scales of a tile, by rows of S^T.
template <class B>
struct ScaleTable {
  using Unit = typename B::Unit;
  using C = typename Unit::C;
  using Float = __attribute__((address_space(3))) float*;
  using Four = __attribute__((address_space(3))) const f32x4*;

  // The factor of each element of a lane's scores. `own`: of the lane's key.
  FA_DEVICE static C spread(const B& block, float own) {
    const LdsBytes table = block.k_tile;
    reinterpret_cast<Float>(table)[Unit::a_row(block.lane)] = own;
    wave_barrier();
    C found;
#pragma unroll
    for (int i = 0; i < Unit::kRows; i += 4) {
      const f32x4 four = *reinterpret_cast<Four>(table + Unit::c_row(block.lane, i) * sizeof(float));
#pragma unroll
      for (int j = 0; j < 4; ++j) found[i + j] = four[j];
    }
    return found;
  }
};

// Probabilities are multiplied by scales over `most`, a power of two that no finite scale so far exceeds, so
// they stay in fp16's range. O is divided likewise, and corrected when `most` rises.
template <class B>
struct ScaledValues {
  using Unit = typename B::Unit;

  float most = 0x1p-100f;  // before the first key

  // The factor of the lane's key: rounded to fp16, so the probability of a row's only key keeps it, although
  // probabilities are truncated. Finite, as 0 times it is 0 for queries that do not see the key.
  FA_DEVICE float factor(float scale, typename B::Out& o, int lane) {
    if (any_lane<Unit::kWave>(__builtin_fabsf(scale) > most)) raise(scale, o, lane);
    const float share = __builtin_amdgcn_fmed3f(scale * inverse_of(most), -1.0f, 1.0f);
    return static_cast<float>(static_cast<_Float16>(share));
  }

  FA_DEVICE void finish(typename B::Out& o) const { times(o, most * B::kCodeUnit); }

 private:
  // Of a power of two, exactly.
  FA_DEVICE static float inverse_of(float power) {
    return __builtin_bit_cast(float, 0x7f000000 - __builtin_bit_cast(uint32_t, power));
  }

  FA_DEVICE static void times(typename B::Out& o, float factor) {
#pragma unroll
    for (int step = 0; step < B::kOutSteps; ++step) {
      Unit::settle(o[step]);
      o[step] *= typename Unit::C(factor);
      Unit::settle(o[step]);
    }
  }

  FA_DEVICE void raise(float scale, typename B::Out& o, int lane) {
    const float size = __builtin_fabsf(scale);
    const float highest = across_lanes<Unit::kWave - 1>(
        size < __builtin_inff() ? size : 0, lane, [](float a, float b) { return __builtin_fmaxf(a, b); });
    const uint32_t up = __builtin_bit_cast(uint32_t, uniform(highest)) + 0x007fffff;
    const float to = __builtin_bit_cast(float, up & 0x7f800000);
    const float below = to < 0x1p126f ? to : 0x1p126f;
    const float now = most < below ? below : most;
    times(o, most * inverse_of(now));
    most = uniform(now);
  }
};

// Computes and stores the rows from block_row on. The first codes are in flight while Q is converted.
template <class B>
FA_DEVICE void attend_scaled(const B& block, int block_row) {
  using Unit = typename B::Unit;
  using RestUnit = UnitOf<B::kArch, DType::bf16>;
  constexpr int kRestStep = B::Q::kSteps - 1;
  __builtin_amdgcn_s_setprio(2);  // its first loads go before another workgroup's exponentials
  const typename B::Tiles tiles = block.tiles(block_row, Unit::kN);
  const PackedView queries = latent_queries(block, block_row);
  const auto query_byte = [&](int byte) { return block.query_byte(byte); };
  HeldQuery<Unit, B::kDType, kRestStep> held(queries, block.lane, query_byte);
  typename B::Q query;
  query.held.step[kRestStep].column[0] = queries.template read<u32x4>(
      Unit::column(block.lane, 0), query_byte((kRestStep * Unit::kK + Unit::run_begin(block.lane)) * 2));
  const typename B::Convert none{};
  LatentKeys<B> k(block, none, tiles.begin, tiles.end);
  typename B::Keys next;
  k.load_first(next, tiles.begin, queries.base);
  held.fit_words(block.lane, [&](float own) { return largest_of_waves(block, own); });
  const float scale = block.params.scale;
#pragma unroll
  for (int i = 0; i < kRestStep; ++i) query.held.step[i].column[0] = held.operand(i);
  // The sign of softmax_scale: that of the parts' factor, and of Q's rest.
  auto& rest_query = query.held.step[kRestStep].column[0];
  rest_query = QuerySign(scale).apply(here(rest_query));
  if (is_zero(scale)) {
#pragma unroll
    for (int i = 0; i < kRestStep; ++i) query.held.step[i].column[0] = u32x4{};
  }
  const float of_parts = uniform(__builtin_copysignf(B::kCodeUnit * held.inverse, scale));
  LatentRows<B> rows(block_row, query, scale);
  if (tiles.begin < tiles.end) {
    const typename B::P::Place place(block.wave_lds, block.lane);
    const ScoreParts<B, B::kPartsApart> parts(block.parts(), block);
    const FloatCodes<B::kWholeCodes> unpack{0x00010001u, 0xbf80bf80, 0x5c005c00};
    ScaledValues<B> scaled;
    for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
      typename B::Keys copy;
      if constexpr (!B::kLateLoads) {
        copy = next.moved();
        k.load(next, first + B::kKeys);
      }
      const typename B::Keys& own = B::kLateLoads ? next : copy;
      const float factor = scaled.factor(own.scale, rows.o, block.lane);
      typename B::Keys::Operands keys;
      typename B::Scores s, rest;
      rows.softmax.begin(s);
      rows.softmax.begin(rest);
      wave_barrier();  // V of the tile before has been read
      const typename Unit::C of_keys = ScaleTable<B>::spread(block, own.scale * of_parts);
      __builtin_amdgcn_s_setprio(3);
      __builtin_amdgcn_sched_barrier(0);
      RestUnit::multiply(rest[0], own.rest, {{rows.query.operand(kRestStep).column[0]}});
#pragma unroll
      for (int n = 0; n < kRestStep; ++n) {
        const int i = (n + kRestStep / 2) % kRestStep;
        keys.of[i] = own.operand(unpack, i);
        Unit::multiply(s[0], keys.of[i], rows.query.operand(i));
        if (i == kRestStep - 1) keys.store_values(block.k_tile, block.lane, 1);
      }
      __builtin_amdgcn_s_setprio(0);
      s[0] = __builtin_elementwise_fma(s[0], of_keys, rest[0]);
      parts.write(s);
      if constexpr (B::kLateLoads) k.load(next, first + B::kKeys);
      workgroup_barrier();
      parts.add(s);
      workgroup_barrier();
      const typename Unit::C of_values = ScaleTable<B>::spread(block, factor);
      wave_barrier();
      keys.store_values(block.k_tile, block.lane, 0);
      wave_barrier();
      typename B::Keys::Values values;
      values.load(block.k_tile, block.lane);
      rows.softmax.template update<B::kOutSteps>(s, rows.o, block.lane, tiles.hidden(first), [&] {
        if (tiles.hidden(first) < 0) mask_end(block, mask_of(block), s, first, rows.first);
      });
      __builtin_amdgcn_s_setprio(1);
      s[0] *= of_values;
      const typename B::P p(place, s);
      values.operands().multiply(rows.o, p);
    }
    scaled.finish(rows.o);
    in_stored_order<B>(rows.o);
  }
  store_rows(block, rows.first, rows.o, rows.softmax);
}

// Defines the kernel `name`. head_dim is K's.
#define FA_MLA_ROWS(name, dtype, head_dim)                                                        \
  FA_KERNEL(forward, mla_rows, dtype, head_dim)                                                   \
  name(const fa::FwdParams params) {                                                              \
    using B = fa::MlaBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::mla_rows>;                   \
    __attribute__((shared, aligned(16))) static char lds[B::kLdsBytes];                           \
    const fa::Sequence sequence = fa::latent_sequence(params, __builtin_amdgcn_workgroup_id_z()); \
    const B block(params, sequence, (fa::LdsBytes)lds);                                           \
    if (block.first_row() < block.rows()) fa::attend_scaled(block, block.first_row());            \
  }

}  // namespace fa
