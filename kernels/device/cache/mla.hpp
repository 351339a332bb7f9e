// Decode of multi-head latent attention: all heads share one head of K, and V is the first elements of K.
//
// A workgroup has one or two steps' rows (all heads and queries of a sequence together) and a part of the
// keys. Its waves share these rows and divide head_dim: each has a slice of V's elements and an equal share
// of the rest of K. It moves only its slice of K, which includes its slice of V. The product of its slices of
// Q and K is a part of each score. All waves add up the parts, and multiply by their slices of V.
#pragma once

#include "device/cache/mla_block.hpp"
#include "device/forward/coded_scores.hpp"
#include "device/forward/parts/epilogue.hpp"
#include "device/forward/parts/products.hpp"
#include "device/forward/parts/prologue.hpp"
#include "device/forward/parts/score_parts.hpp"
#include "device/masks/bias.hpp"

namespace fa {

// The elements of the slice of Q: V's part, then the rest.
template <class B>
struct SlicedRows {
  static constexpr int kValueBytes = B::kSliceValues * 2;

  PackedView rows;
  int values, rest;  // start of each

  FA_DEVICE SlicedRows(const B& block, const PackedView& rows)
      : rows(rows), values(block.query_byte(0)), rest(block.query_byte(kValueBytes)) {}

  template <class T>
  FA_DEVICE T read(int row, int byte) const {
    return rows.template read<T>(row, byte < kValueBytes ? values + byte : rest + byte - kValueBytes);
  }
};

template <class B>
FA_DEVICE PackedView latent_queries(const B& block, int block_row) {
  const FwdParams& params = block.params;
  const char* const base = static_cast<const char*>(params.q) + block.batch * params.q_batch * 2;
  return {base, params.q_row * 2, params.q_head * 2, block.group, block_row, block.rows()};
}

// K of one sequence in memory. A thread loads its pieces, one tile after another. Pages are looked up a tile
// ahead, or each tile would wait for memory twice.
template <class B>
struct LatentKeys {
  using Stage = typename B::Keys;

  const B& block;
  const typename B::Convert& how;
  HeadRows rows;
  uint32_t page = 0;  // of the next tile, as in the table

  FA_DEVICE LatentKeys(const B& block, const typename B::Convert& how, int first, int end)
      : block(block),
        how(how),
        // clang 21 would place the stride in vector registers, where pages want it, and cannot move it back.
        rows{static_cast<const char*>(block.params.k) +
                 (paged() ? 0 : block.batch * block.params.k_batch * B::kElementBytes),
             uniform(static_cast<int>(block.params.k_row * B::kElementBytes)), end} {
    if (!B::kInRegisters && paged()) page = view(first).look_up(Stage::row_of(block.thread));
  }

  FA_DEVICE bool paged() const { return block.params.block_table != nullptr; }

  FA_DEVICE void load(Stage& stage, int first) {
    if constexpr (B::kSlicing == Slices::staged || B::kScaled) {
      stage.load(rows_from(first), {}, block.thread);
    } else if (!paged()) {
      stage.load(typename B::TileView(rows, first), {}, block.thread);
    } else {
      const int row = Stage::row_of(block.thread);
      stage.load(view(first), view(first).group(row, page), block.thread);
      page = view(first + B::kKeys).look_up(row);
    }
    descales(stage, first);
  }

  FA_DEVICE void look_up(int first) { page = view(first).look_up(Stage::row_of(block.thread)); }

  // The first tile, with the same loads for all calls: no load in flight is waited for. Without keys it is
  // the row `instead`.
  FA_DEVICE void load_first(Stage& stage, int first, const char* instead) {
    RowAt from{instead};
    if (first < rows.rows) {
      const int row = Stage::row_of(block.thread);
      from.at = view(first).at({rows.base, 0}, row);
      if (paged()) {
        look_up(first);
        from.at = view(first).at(view(first).group(row, page), row);
        look_up(first + B::kKeys);
      }
      descales(stage, first);
    }
    stage.load(from, {}, block.thread);
  }

 private:
  FA_DEVICE void descales(Stage& stage, int first) const {
    if constexpr (B::kCoded && !B::kScaled)
      if (how.per_key(false)) load_descales(stage, first);
  }

  // A thread's rows of a tile, dense and paged ones by the same loads.
  FA_DEVICE RowsFrom rows_from(int first) {
    const int row = Stage::row_of(block.thread);
    const char* at = view(first).at({rows.base, 0}, row);
    if (paged()) {
      at = view(first).at(view(first).group(row, page), row);
      look_up(first + B::kKeys);
    }
    return {at, static_cast<uint32_t>(rows.row_bytes), row, view(first).below(row)};
  }

  // Few calls have them: their arguments are loaded here.
  FA_DEVICE void load_descales(Stage& stage, int first) const {
    const CodedParams& p = coded_params(reloaded(kernel_arguments()));
    const uint32_t batch = paged() ? 0 : block.batch;
    const Source source = descale_rows(KeyPlace{batch, 0, 0, rows.rows}, false, p);
#pragma unroll
    for (int i = 0; i < B::Descales::kHeld; ++i) {
      const int key = B::Descales::key(i, block.lane);
      if (paged()) {
        const PagedView view{paged_rows(source, p.fwd, block.batch), first};
        stage.descales.held[i] = view.template read<float>(view.group(key), key, 0);
      } else {
        stage.descales.held[i] = typename B::DescaleView(source.rows, first).template read<float>(key, 0);
      }
    }
  }

  FA_DEVICE PagedView view(int first) const {
    const FwdParams& params = block.params;
    const int32_t* const table = params.block_table + block.batch * params.table_batch;
    return {{rows.base, rows.row_bytes, params.k_batch * B::kElementBytes, table, rows.rows,
             here_uniform(params.page), params.num_pages - 1},
            first};
  }
};

// A step's rows and their results.
template <class B>
struct LatentRows {
  int first;
  typename B::Q query;
  typename B::Softmax softmax;
  typename B::Out o;

  FA_DEVICE LatentRows(int first, const typename B::Q& query, float scale)
      : first(first), query(query), softmax(factor_of(scale)) {
    clear<B>(o);
  }

  FA_DEVICE static float factor_of(float scale) {
    return (scale == 0 ? 1 : __builtin_fabsf(scale)) * Bias::kLog2e;
  }
};

// The results of `make` for 0, and for 1 if there are two.
template <class T, int kNumber>
struct Few {
  T at[kNumber];
  template <class Make>
  FA_DEVICE explicit Few(const Make& make) : at{make(0), make(1)} {}
  FA_DEVICE T& operator[](int i) { return at[i]; }
  FA_DEVICE const T& operator[](int i) const { return at[i]; }
};
template <class T>
struct Few<T, 1> {
  T at;
  template <class Make>
  FA_DEVICE explicit Few(const Make& make) : at(make(0)) {}
  FA_DEVICE T& operator[](int) { return at; }
  FA_DEVICE const T& operator[](int) const { return at; }
};

// Calls `multiply(n, operand)` for each of kSteps operands A, read(n), prefetched as the config says.
template <class B, int kSteps, class Read, class Multiply>
FA_DEVICE void for_operands(const Read& read, const Multiply& multiply) {
  if constexpr (B::kConfig.prefetch != 0) {
    typename B::Operands(read).template run<kSteps>(read, multiply);
  } else {
#pragma unroll
    for (int n = 0; n < kSteps; ++n) multiply(n, read(n));
  }
}

// Computes and stores the rows from block_row on, of kUsed blocks.
template <class B, int kUsed>
FA_DEVICE void attend_latent(const B& block, int block_row) {
  using Unit = typename B::Unit;
  const typename B::Tiles tiles = block.tiles(block_row, kUsed * Unit::kN);
  typename B::Convert convert;
  Few<LatentRows<B>, kUsed> rows([&](int c) {
    const int first = block_row + c * Unit::kN;
    const float scale = block.params.scale;
    const SlicedRows<B> slice(block, latent_queries(block, first));
    const QuerySign sign(block.params.scale);
    return LatentRows<B>(first, {block.wave_lds, slice, sign, convert, block.lane}, scale);
  });
  if (tiles.begin < tiles.end) {
    LatentKeys<B> k(block, convert, tiles.begin, tiles.end);
    typename B::Keys next;
    k.load(next, tiles.begin);
#pragma unroll
    for (int c = 0; c < kUsed; ++c) rows[c].query.wait();
    const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
    int parts_at = 0;
    for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
      const typename B::Keys own = next;
      wave_barrier();
      own.store_rows(block.k_tile, block.lane);
      if constexpr (!B::kOverlaid) own.store_transposed(block.own_values(), block.lane);
      wave_barrier();
      k.load(next, first + B::kKeys);
      typename B::Scores s[kUsed];
#pragma unroll
      for (int c = 0; c < kUsed; ++c) rows[c].softmax.begin(s[c]);
      for_operands<B, B::Q::kSteps * B::kScoreSteps>(
          [&](int n) { return nth_key_operand(block, n, 0); },
          [&](int n, typename Unit::A a) {
#pragma unroll
            for (int c = 0; c < kUsed; ++c) {
              Unit::multiply(s[c][n % B::kScoreSteps], a, rows[c].query.operand(n / B::kScoreSteps));
            }
          });
      const auto parts = [&](int c) {
        const LdsBytes all = block.parts() + parts_at + c * B::kPartBytes;
        return ScoreParts<B, B::kPartsApart>(all, block);
      };
#pragma unroll
      for (int c = 0; c < kUsed; ++c) parts(c).write(s[c]);
      workgroup_barrier();
#pragma unroll
      for (int c = 0; c < kUsed; ++c) parts(c).add(s[c]);
      if constexpr (B::kOverlaid) {
        workgroup_barrier();  // all waves have read the parts
        own.store_transposed(block.own_values(), block.lane);
        wave_barrier();
      } else {
        parts_at = B::kPartsLds - parts_at;
      }
#pragma unroll
      for (int c = 0; c < kUsed; ++c) {
        rows[c].softmax.template update<B::kOutSteps>(s[c], rows[c].o, block.lane, tiles.hidden(first), [&] {
          if (tiles.hidden(first) < 0) mask_end(block, mask_of(block), s[c], first, rows[c].first);
        });
      }
      const Few<typename B::P, kUsed> p([&](int c) { return typename B::P(place, s[c]); });
      const LdsBytes values = B::Values::Tile::period(block.v_tile, block.first_out_step());
      for_operands<B, B::P::kSteps * B::kOutSteps>(
          [&](int n) { return value_operand(block, values, n / B::kOutSteps, n % B::kOutSteps); },
          [&](int n, typename Unit::A a) {
#pragma unroll
            for (int c = 0; c < kUsed; ++c) {
              Unit::multiply(rows[c].o[n % B::kOutSteps], a, p[c].operand(n / B::kOutSteps));
            }
          });
    }
  }
#pragma unroll
  for (int c = 0; c < kUsed; ++c) store_rows(block, rows[c].first, rows[c].o, rows[c].softmax);
}

// Of the tensors describing sequences, these kernels have only the lengths.
FA_DEVICE Sequence latent_sequence(const FwdParams& params, int batch) {
  int keys = params.seqlen_k;
  if (params.seqused_k != nullptr) keys = cut(params.seqused_k[batch], 0, keys);
  return {0, params.seqlen_q, 0, uniform(keys)};
}

// Computes the workgroup's rows. Returns false and does nothing if they are more than kUsed blocks.
template <class B, int kUsed>
FA_DEVICE bool run_blocks(const FwdParams& params, LdsBytes lds) {
  const B block(params, latent_sequence(params, __builtin_amdgcn_workgroup_id_z()), lds);
  const int block_row = block.first_row(), left = block.rows() - block_row;
  if (kUsed < B::kBlocks && left > kUsed * B::Unit::kN) return false;
  if (left > 0) attend_latent<B, kUsed>(block, block_row);
  return true;
}

template <class B>
FA_DEVICE void run_mla(const FwdParams& params, LdsBytes lds) {
  const Arguments arguments = kernel_arguments();
  if (run_blocks<B, 1>(params, lds) || B::kBlocks == 1) return;
  run_blocks<B, B::kBlocks>(reloaded(arguments), lds);
  asm volatile("; keeps the ends of the two apart, which must not share registers");
}

// Defines the kernel `name`. head_dim is K's.
#define FA_MLA(name, dtype, head_dim)                                      \
  FA_KERNEL(forward, mla, dtype, head_dim)                                 \
  name(const fa::FwdParams params) {                                       \
    using B = fa::MlaBlock<fa::kCurrentGfx, dtype, head_dim, fa::Op::mla>; \
    __attribute__((shared, aligned(16))) static char lds[B::kLdsBytes];    \
    fa::run_mla<B>(params, (fa::LdsBytes)lds);                             \
  }

}  // namespace fa
