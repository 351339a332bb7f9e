// Dense forward attention: one workgroup computes a block of queries of one head, a wave a step's
// columns of it, tile by tile of keys:
//
//   S^T = K * Q^T          lanes are queries: a query's scores stay in (almost) one lane
//   P   = online softmax   fp32, in registers
//   O^T += V^T * P^T       P^T is the result of the first product in its own layout
//
// While a tile is computed from LDS the next one is on its way from global memory to registers.
#pragma once

#include "fa/arch/current.hpp"
#include "fa/kernel/config.hpp"
#include "fa/kernel/params.hpp"
#include "fa/mma/dot2.hpp"
#include "fa/mma/mfma.hpp"
#include "fa/mma/wmma.hpp"
#include "fa/tile/mask.hpp"
#include "fa/tile/probabilities.hpp"
#include "fa/tile/query.hpp"
#include "fa/tile/softmax.hpp"
#include "fa/tile/stage.hpp"
#include "fa/tile/store.hpp"

namespace fa {

template <Gfx kGfx, DType kDType, int kHeadDim>
struct Forward {
  static_assert(is_fwd_head_dim(kHeadDim),
                "head dims of the forward kernel: kFwdHeadDims in kernel/config.hpp");

  static constexpr ArchTraits kTraits = traits(kGfx);
  static constexpr FwdConfig kConfig = fwd_config(kGfx, kDType, kHeadDim);
  static constexpr FwdTile kTile = fwd_tile(kGfx, kDType, kHeadDim);
  static constexpr int kKeys = kConfig.keys;
  static constexpr int kRowBytes = kHeadDim * 2;

  using Unit = UnitOf<kGfx, kDType>;
  using Keys = KeyStage<Unit, kKeys, kHeadDim, kTile.threads>;
  using Values = ValueStage<Unit, kKeys, kHeadDim, kTile.threads>;
  using Query = typename QueryOf<Unit, kHeadDim>::type;
  using P = Probabilities<Unit, kKeys, kDType>;
  using TileWindow = Window<kKeys, kRowBytes, kTraits.buffer_word3>;
  using QueryWindow = Window<Unit::kN, kRowBytes, kTraits.buffer_word3>;

  static constexpr int kScoreSteps = kKeys / Unit::kM;
  static constexpr int kOutSteps = kHeadDim / Unit::kM;
  static constexpr int kWaveLds = Query::kLdsBytes + P::kLdsBytes;
  static constexpr int kLdsBytes = Keys::Tile::kBytes + Values::Tile::kBytes + kConfig.waves * kWaveLds;
  static_assert(kLdsBytes <= kTraits.lds_bytes, "the tiles do not fit into LDS");

  using Scores = typename Unit::C[kScoreSteps];
  using Out = typename Unit::C[kOutSteps];

  FA_DEVICE static void run(const FwdParams& params, LdsBytes lds) {
    const int thread = __builtin_amdgcn_workitem_id_x();
    const int lane = thread % Unit::kWave;
    const int wave = uniform(thread / Unit::kWave);
    const int head = __builtin_amdgcn_workgroup_id_y();
    const int batch = __builtin_amdgcn_workgroup_id_z();
    const int block_row = __builtin_amdgcn_workgroup_id_x() * kTile.block_m;
    const int wave_row = block_row + wave * Unit::kN;

    const int head_k = head / (params.nheads / params.nheads_k);
    const Matrix q =
        matrix(params.q, batch, params.q_batch, head, params.q_head, params.q_row, params.seqlen_q);
    const Matrix k =
        matrix(params.k, batch, params.k_batch, head_k, params.k_head, params.k_row, params.seqlen_k);
    const Matrix v =
        matrix(params.v, batch, params.v_batch, head_k, params.v_head, params.v_row, params.seqlen_k);

    const LdsBytes k_tile = lds;
    const LdsBytes v_tile = k_tile + Keys::Tile::kBytes;
    const LdsBytes wave_lds = v_tile + Values::Tile::kBytes + wave * kWaveLds;

    const Visibility visible{params.seqlen_q, params.seqlen_k, params.causal != 0};
    const int block_end = visible.end_of_rows(block_row, kTile.block_m);
    const int wave_end = visible.end_of_rows(wave_row, Unit::kN);
    const int unmasked_end = visible.end(wave_row);
    int end[Unit::kColumns];
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) end[c] = visible.end(wave_row + Unit::column(lane, c));

    Keys next_k;
    Values next_v;
    next_k.load(TileWindow(k, 0), thread);
    next_v.load(TileWindow(v, 0), thread);

    const Query query(wave_lds, QueryWindow(q, wave_row), QuerySign(params.scale), lane);
    constexpr float kLog2e = 1.44269504088896341f;
    Softmax<Unit, kScoreSteps> softmax(params.scale == 0 ? 1 : __builtin_fabsf(params.scale) * kLog2e);
    Out o = {};

    for (int first = 0; first < block_end; first += kKeys) {
      workgroup_barrier();  // all waves are done with the last tile
      next_k.store(k_tile, thread);
      next_v.store(v_tile, thread);
      workgroup_barrier();
      next_k.load(TileWindow(k, first + kKeys), thread);
      next_v.load(TileWindow(v, first + kKeys), thread);
      if (first < wave_end) {
        Scores s = {};
        add_scores(s, k_tile, query, lane);
        if (first + kKeys > unmasked_end) mask(s, first, end, lane);
        softmax.template update<kOutSteps>(s, o, lane);
        const P p(wave_lds + Query::kLdsBytes, s, lane);
        add_values(o, v_tile, p, lane);
      }
    }

    softmax.join_sums(lane);
#pragma unroll
    for (int step = 0; step < kOutSteps; ++step) Unit::settle(o[step]);
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
      const int row = wave_row + Unit::column(lane, c);
      if (row < params.seqlen_q) store(params, batch, head, row, o, softmax, c, lane);
    }
  }

 private:
  FA_DEVICE static Matrix matrix(const void* base, int batch, int64_t batch_stride, int head,
                                 int64_t head_stride, int64_t row_stride, int rows) {
    return {static_cast<const char*>(base) + (batch * batch_stride + head * head_stride) * 2, row_stride * 2,
            rows};
  }

  // S^T += K * Q^T.
  FA_DEVICE static void add_scores(Scores& s, LdsBytes k_tile, const Query& query, int lane) {
#pragma unroll Query::kUnroll
    for (int i = 0; i < Query::kSteps; ++i) {
      const typename Unit::B q = query.operand(i);
      const int unit = (i * Unit::kK + Unit::run_begin(lane)) / 8;
#pragma unroll
      for (int step = 0; step < kScoreSteps; ++step) {
        Unit::multiply(
            s[step],
            Keys::Tile::template read<typename Unit::A>(k_tile, step * Unit::kM + Unit::a_row(lane), unit),
            q);
      }
    }
  }

  // O^T += V^T * P^T.
  FA_DEVICE static void add_values(Out& o, LdsBytes v_tile, const P& p, int lane) {
#pragma unroll P::kUnroll
    for (int i = 0; i < P::kSteps; ++i) {
      const typename Unit::B b = p.operand(i);
      const int unit = (i * Unit::kK + Unit::run_begin(lane)) / 8;
#pragma unroll
      for (int step = 0; step < kOutSteps; ++step) {
        Unit::multiply(
            o[step],
            Values::Tile::template read<typename Unit::A>(v_tile, step * Unit::kM + Unit::a_row(lane), unit),
            b);
      }
    }
  }

  // Scores of keys from end[column] on become -inf.
  FA_DEVICE static void mask(Scores& s, int first, const int* end, int lane) {
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
      const int left = end[c] - first - Unit::held_begin(lane, kKeys);
#pragma unroll
      for (int f = 0; f < kScoreSteps * Unit::kRows; ++f) {
        typename Unit::C& step = s[f / Unit::kRows];
        const int element = f % Unit::kRows * Unit::kColumns + c;
        step[element] = Unit::held_step(f) < left ? step[element] : -__builtin_inff();
      }
    }
  }

  template <class State>
  FA_DEVICE static void store(const FwdParams& params, int batch, int head, int row, const Out& o,
                              const State& softmax, int c, int lane) {
    char* out = static_cast<char*>(params.out) +
                (batch * params.o_batch + head * params.o_head + row * params.o_row) * 2;
    store_column<Unit, kDType, kHeadDim>(o, c, softmax.inverse_sum(c), out, lane);
    if (Unit::held_begin(lane, kKeys) == 0) {
      const int64_t head_row = static_cast<int64_t>(batch) * params.nheads + head;
      params.lse[head_row * params.seqlen_q + row] = softmax.log_sum_exp(c);
    }
  }
};

// Defines the kernel `name`.
#define FA_FORWARD(name, dtype, head_dim)                                                                    \
  extern "C" __attribute__((global))                                                                         \
  __attribute__((amdgpu_flat_work_group_size(fa::fwd_tile(fa::kCurrentGfx, dtype, head_dim).threads,         \
                                             fa::fwd_tile(fa::kCurrentGfx, dtype, head_dim).threads)))       \
  __attribute__((amdgpu_waves_per_eu(fa::fwd_config(fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void \
  name(const fa::FwdParams params) {                                                                         \
    using Kernel = fa::Forward<fa::kCurrentGfx, dtype, head_dim>;                                            \
    __attribute__((shared, aligned(16))) static char lds[Kernel::kLdsBytes];                                 \
    Kernel::run(params, (fa::LdsBytes)lds);                                                                  \
  }

}  // namespace fa
