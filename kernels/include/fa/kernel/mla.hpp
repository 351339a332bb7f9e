// Decode of multi-head latent attention: all heads share one head of K, and V is the first elements of K.
//
// A workgroup has one step's rows, of all heads and queries of a sequence together, and a part of the keys.
// Its waves share these rows and divide head_dim: each has a slice of V's elements, and as large a part of
// those that K has beyond them.  It moves its slice of K alone, and V is what it moved.  What its slices of Q
// and K give is a part of each score; all waves add the parts up, take the same softmax, and multiply by
// their slices of V.  No product is computed twice, and no key loaded twice.
#pragma once

#include "fa/kernel/epilogue.hpp"
#include "fa/kernel/products.hpp"
#include "fa/kernel/prologue.hpp"
#include "fa/kernel/score_parts.hpp"
#include "fa/kernel/source.hpp"
#include "fa/tile/bias.hpp"
#include "fa/tile/slice_stage.hpp"

namespace fa {

// What one workgroup works on; names as in Block, whose functions take it, too.
template <Gfx kGfx, DType kElement, int kDim>
struct MlaBlock {
  static constexpr DType kDType = kElement;
  static constexpr int kKeyDim = kDim, kHeadDim = mla_value_dim(kDim);  // the second one: of V and out
  static constexpr ArchTraits kTraits = traits(kGfx);
  static constexpr bool kPacked = true, kWide = false, kMasked = false, kDrops = false;
  static constexpr bool kFeatured = true;  // pages, and nothing else
  static constexpr FwdConfig kConfig = mla_config(kGfx, kDType, kKeyDim);
  FA_REQUIRE_ROW("mla", kConfig.waves > 0);
  static constexpr int kKeys = kConfig.keys, kSlices = kConfig.waves;
  static constexpr float kOutUnit = 1;

  using Unit = UnitOf<kGfx, kDType>;
  static constexpr int kSliceValues = kHeadDim / kSlices, kSliceKeys = kKeyDim / kSlices;
  struct Values {
    using Tile = PlacedTile<Choice<Unit::kM == 16, ShortFragments<kHeadDim, kKeys * 2>,
                                   Swizzle<kHeadDim, kKeys * 2, Unit::kM, true>>>;
  };
  using Keys = SliceStage<Unit, kKeys, kSliceValues, kSliceKeys - kSliceValues, kSlices,
                          typename Values::Tile>;
  using Q = Query<Unit, kSliceKeys, kConfig.query_steps, true>;
  using P = Probabilities<Unit, kKeys, kDType, true, false>;
  using TileView = BufferView<kKeys, kKeyDim * 2, kTraits.buffer_word3>;
  static constexpr bool kTwoTiles = false, kUnrolls = true;
  static constexpr int kScorePriority = 0, kOutPriority = 0;

  static constexpr int kScoreSteps = kKeys / Unit::kM;
  static constexpr int kOutSteps = kSliceValues / Unit::kM;
  static_assert(kOutSteps * Unit::kM * kSlices == kHeadDim, "a wave has whole steps");
  using Softmax = typename SoftmaxOf<Unit, kScoreSteps, false, kConfig, false,
                                     !kTraits.matrix_coexecution>::Type;
  using Operands = Prefetch<typename Unit::A, kConfig.prefetch>;
  using Scores = typename Unit::C[kScoreSteps];
  using Out = typename Unit::C[kOutSteps];
  using Convert = Unchanged;

  // LDS: each wave's rows of K, then V^T, in the same place where there is no room; the parts of scores,
  // twice where there is room, so that a tile needs one barrier; then each wave's Q and P.
  static constexpr int kWaveValuesLds = Values::Tile::kBytes / kSlices;
  static constexpr int kWaveQueryLds = Q::kLdsBytes;
  static constexpr int kWaveLds = kWaveQueryLds + P::kLdsBytes;
  static constexpr int kPartsLds = kSlices * sizeof(Scores) * Unit::kWave;
  static constexpr int kOwnLds = kPartsLds + kSlices * kWaveLds;
  static constexpr int kApartLds = kSlices * Keys::Tile::kBytes + Values::Tile::kBytes;
  static constexpr bool kOverlaid = kApartLds + kOwnLds > kTraits.lds_bytes;
  static constexpr int kKeyLds = larger(Keys::Tile::kBytes, kOverlaid ? kWaveValuesLds : 0);  // of a wave
  static constexpr int kTilesLds = kOverlaid ? kSlices * kKeyLds : kApartLds;
  static constexpr int kPartsPlaces = kTilesLds + kOwnLds + kPartsLds > kTraits.lds_bytes ? 1 : 2;
  static constexpr int kLdsBytes = kTilesLds + kOwnLds + (kPartsPlaces - 1) * kPartsLds;
  static_assert(!kOverlaid || kKeyLds == kWaveValuesLds, "a wave's rows of K have room in those of V^T");
  static_assert(kLdsBytes <= kTraits.lds_bytes, "the tiles do not fit into LDS");
  static_assert(Unit::kN == kTraits.step_columns, "archs/isas.toml has another number of columns");

  struct Tiles : TileBounds {
    // Negative where a key of the tile is hidden from one of the rows.
    FA_DEVICE int hidden(int first) const { return unmasked_end - kKeys - first; }
  };

  const FwdParams& params;
  const Sequence sequence;
  const int place, batch, thread, lane, wave;  // place: in x
  const int group;                             // heads
  const Visibility visible;
  const LdsBytes k_tile, v_tile, parts, wave_lds;
  static constexpr int head = 0;  // of K

  FA_DEVICE MlaBlock(const FwdParams& params, const Sequence& sequence, LdsBytes lds)
      : params(params),
        sequence(sequence),
        place(__builtin_amdgcn_workgroup_id_x()),
        batch(__builtin_amdgcn_workgroup_id_z()),
        thread(__builtin_amdgcn_workitem_id_x()),
        lane(thread % Unit::kWave),
        wave(uniform(thread / Unit::kWave)),
        group(params.nheads),
        visible{sequence.seqlen_q, sequence.seqlen_k, kNoWindow, params.window_right},
        k_tile(lds + wave * kKeyLds),
        v_tile(lds + (kOverlaid ? 0 : kSlices * Keys::Tile::kBytes)),
        parts(lds + kTilesLds),
        wave_lds(lds + kLdsBytes - (kSlices - wave) * kWaveLds) {}

  FA_DEVICE int slice() const { return wave; }
  FA_DEVICE int first_out_step() const { return wave * kOutSteps; }
  FA_DEVICE int reader() const { return lane; }
  FA_DEVICE LdsBytes own_values() const { return v_tile + wave * kWaveValuesLds; }

  FA_DEVICE int rows() const { return sequence.seqlen_q * group; }
  FA_DEVICE int first_row() const { return uniform(place % row_blocks(params)) * Unit::kN; }
  FA_DEVICE int query_of(int row) const {
    return static_cast<int>(static_cast<unsigned>(row) / static_cast<unsigned>(group));
  }
  FA_DEVICE int head_of(int row) const { return row - query_of(row) * group; }
  FA_DEVICE int part(const FwdParams& params) const {
    return params.splits > 1 ? uniform(place / row_blocks(params)) : 0;
  }

  // Of the workgroup's part.
  FA_DEVICE Tiles tiles(int block_row) const {
    const int past = rows() - block_row < Unit::kN ? rows() : block_row + Unit::kN;
    const int first = uniform(query_of(block_row)), last = uniform(query_of(past - 1));
    const int end = visible.end(last);
    const Part tiles = part_of(0, (end + kKeys - 1) / kKeys, part(params), params.splits);
    const int tiles_end = tiles.end * kKeys;
    return {{tiles.begin * kKeys, tiles_end < end ? tiles_end : end, 0, end, 0, visible.end(first)}};
  }

 private:
  FA_DEVICE int row_blocks(const FwdParams& params) const {
    return blocks_of_rows(params.seqlen_q * group, Unit::kN);
  }
};

// The elements of the slice of Q: those of V, then those beyond.
template <class B>
struct SlicedRows {
  PackedView rows;
  int values, rest;  // where they begin

  template <class T>
  FA_DEVICE T read(int row, int byte) const {
    constexpr int kValueBytes = B::kSliceValues * 2;
    return rows.template read<T>(row, byte < kValueBytes ? values + byte : rest + byte - kValueBytes);
  }
};

template <class B>
FA_DEVICE typename B::Q load_latent_query(const B& block, int block_row, typename B::Convert& convert) {
  const FwdParams& params = block.params;
  const char* const base = static_cast<const char*>(params.q) + block.batch * params.q_batch * 2;
  const PackedView rows{base,        params.q_row * 2, params.q_head * 2,
                        block.group, block_row,        block.rows()};
  const SlicedRows<B> slice{rows, block.slice() * B::kSliceValues * 2,
                            (B::kHeadDim + block.slice() * (B::kSliceKeys - B::kSliceValues)) * 2};
  return typename B::Q(block.wave_lds, slice, QuerySign(params.scale), convert, block.lane);
}

// K of one sequence in memory, of which a thread loads its pieces, one tile after another.  Pages are looked
// up a tile ahead: else each tile would wait for memory twice.
template <class B>
struct LatentKeys {
  using Stage = typename B::Keys;

  const B& block;
  Source source;
  uint32_t page = 0;  // of the next tile, as the table has it

  FA_DEVICE LatentKeys(const B& block, int first, int end)
      : block(block),
        source(source_of(block, {}, block.params.k, block.params.k_batch, block.params.k_head,
                         block.params.k_row, end)) {
    if (paged()) page = view(first).look_up(Stage::row_of(block.thread));
  }

  FA_DEVICE bool paged() const { return block.params.block_table != nullptr; }

  FA_DEVICE void load(Stage& stage, int first) {
    if (!paged()) {
      stage.load(typename B::TileView(source.rows, first), {}, block.thread);
    } else {
      const int row = Stage::row_of(block.thread);
      stage.load(view(first), view(first).group(row, page), block.thread);
      page = view(first + B::kKeys).look_up(row);
    }
  }

 private:
  FA_DEVICE PagedView view(int first) const {
    const FwdParams& params = block.params;
    return {{source.rows.base, source.rows.row_bytes, source.page_bytes,
             params.block_table + block.batch * params.table_batch, source.rows.rows,
             here_uniform(params.page), params.num_pages - 1},
            first};
  }
};

// Computes and stores the rows from block_row on.
template <class B>
FA_DEVICE void attend_latent(const B& block, int block_row) {
  const FwdParams& params = block.params;
  const typename B::Tiles tiles = block.tiles(block_row);
  const float scale = params.scale == 0 ? 1 : __builtin_fabsf(params.scale);
  typename B::Softmax softmax(scale * Bias::kLog2e);
  typename B::Convert convert;
  typename B::Out o;
  clear<B>(o);
  if (tiles.begin < tiles.end) {
    LatentKeys<B> k(block, tiles.begin, tiles.end);
    typename B::Q query = load_latent_query(block, block_row, convert);
    typename B::Keys next;
    k.load(next, tiles.begin);
    query.wait();
    const typename B::P::Place place(block.wave_lds + B::kWaveQueryLds, block.lane);
    LdsBytes here_parts = block.parts;
    for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
      const typename B::Keys own = next;
      wave_barrier();
      own.store_rows(block.k_tile, block.lane);
      if constexpr (!B::kOverlaid) own.store_transposed(block.own_values(), block.lane);
      wave_barrier();
      k.load(next, first + B::kKeys);
      typename B::Scores s;
      softmax.begin(s);
      add_scores(block, s, query, prefetch_keys(block, 0), 0);
      const ScoreParts<B> parts(here_parts, block);
      if constexpr (B::kPartsPlaces == 1) workgroup_barrier();  // all waves have read the last parts
      parts.write(s);
      workgroup_barrier();
      parts.add(s);
      if constexpr (B::kOverlaid) own.store_transposed(block.own_values(), block.lane);
      if constexpr (B::kPartsPlaces == 2) {
        here_parts = block.parts + (B::kPartsLds - static_cast<int>(here_parts - block.parts));
      }
      softmax.template update<B::kOutSteps>(s, o, block.lane, tiles.hidden(first), [&] {
        if (tiles.hidden(first) < 0) mask_end(block, mask_of(block), s, first, block_row);
      });
      const typename B::P p(place, s);
      wave_barrier();
      add_values(block, o, p);
    }
  }
  store_rows(block, block_row, o, softmax);
}

template <class B>
FA_DEVICE void run_mla(const FwdParams& params, LdsBytes lds) {
  const Sequence sequence = uniform_sequence(params, __builtin_amdgcn_workgroup_id_z());
  const B block(params, sequence, lds);
  const int block_row = block.first_row();
  if (block_row < block.rows()) attend_latent(block, block_row);
}

// Defines the kernel `name`; head_dim is that of K.
#define FA_MLA(name, dtype, head_dim)                                                                       \
  extern "C" __attribute__((global)) __attribute__((                                                        \
      amdgpu_flat_work_group_size(fa::mla_tile(fa::kCurrentGfx, dtype, head_dim).threads,                   \
                                  fa::mla_tile(fa::kCurrentGfx, dtype, head_dim).threads)))                 \
  __attribute__((amdgpu_waves_per_eu(fa::mla_config(fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void \
  name(const fa::FwdParams params) {                                                                        \
    using B = fa::MlaBlock<fa::kCurrentGfx, dtype, head_dim>;                                               \
    __attribute__((shared, aligned(16))) static char lds[B::kLdsBytes];                                     \
    fa::run_mla<B>(params, (fa::LdsBytes)lds);                                                              \
  }

}  // namespace fa
