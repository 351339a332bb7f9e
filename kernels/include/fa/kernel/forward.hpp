// Forward attention: one workgroup computes a block of queries of one head, a wave a step's
// columns of it, tile by tile of keys:
//
//   S^T = K * Q^T          lanes are queries: a query's scores stay in (almost) one lane
//   P   = online softmax   fp32, in registers
//   O^T += V^T * P^T       P^T is the result of the first product in its own layout
//
// Windows, softcap, ALiBi, ragged batches and pages are branches that a whole wave takes or not.
#pragma once

#include "fa/arch/current.hpp"
#include "fa/kernel/config.hpp"
#include "fa/kernel/params.hpp"
#include "fa/kernel/sequence.hpp"
#include "fa/mma/dot2.hpp"
#include "fa/mma/mfma.hpp"
#include "fa/mma/wmma.hpp"
#include "fa/tile/bias.hpp"
#include "fa/tile/dropout.hpp"
#include "fa/tile/early.hpp"
#include "fa/tile/folded_softmax.hpp"
#include "fa/tile/mask.hpp"
#include "fa/tile/narrow.hpp"
#include "fa/tile/probabilities.hpp"
#include "fa/tile/query.hpp"
#include "fa/tile/softmax.hpp"
#include "fa/tile/stage.hpp"
#include "fa/tile/store.hpp"

namespace fa {

// The arguments where the hardware has put them.
using Arguments = __attribute__((address_space(4))) const FwdParams*;
FA_DEVICE Arguments kernel_arguments() { return (Arguments)__builtin_amdgcn_kernarg_segment_ptr(); }

// The same arguments, which the compiler takes for others: of two loops it would otherwise load all that any
// of them needs before both, more than there are scalar registers.
FA_DEVICE const FwdParams& once_more(Arguments arguments) {
  asm volatile("" : "+s"(arguments));
  return *(const FwdParams*)arguments;
}

// The softmax for a unit: what there is to save differs.  kBegun: nothing happens to the scores before it.
template <class Unit, int kSteps, bool kBegun, bool kPaired, bool kFolded = Unit::kFoldsShift>
struct StateOf {
  using Type = Softmax<Unit, kSteps>;
};
template <class Unit, int kSteps, bool kBegun, bool kPaired>
struct StateOf<Unit, kSteps, kBegun, kPaired, true> {
  using Type = FoldedSoftmax<Unit, kSteps, kBegun, kPaired>;
};

template <bool kNarrow>
struct ConvertOf {
  using Type = AsTheyAre;
};
template <>
struct ConvertOf<true> {
  using Type = Narrow;
};

// Rows::packed is decode: a workgroup has one step's rows of a head of k and v, and a part of the keys; its
// waves all compute the same scores, and a part of head_dim each.
//
// kFeatured: softcap, ALiBi, pages and dropout, whose code would take registers from the loop that needs none
// of it.  Decode has no dropout.
template <Gfx kGfx, DType kDType, int kHeadDim, bool kFeatured, Rows kRows = Rows::queries>
struct Forward {
  static_assert(is_fwd_head_dim(kHeadDim),
                "head dims of the forward kernel: kFwdHeadDims in kernel/config.hpp");

  static constexpr ArchTraits kTraits = traits(kGfx);
  static constexpr bool kPacked = kRows == Rows::packed;
  static constexpr bool kDrops = kFeatured && !kPacked;
  static constexpr FwdConfig kConfig = kPacked ? decode_config(kGfx, kDType, kHeadDim, kFeatured)
                                               : fwd_config(kGfx, kDType, kHeadDim, kFeatured);
  static constexpr FwdTile kTile =
      kPacked ? decode_tile(kGfx, kDType, kHeadDim) : fwd_tile(kGfx, kDType, kHeadDim);
  static constexpr int kKeys = kConfig.keys;
  static constexpr int kRowBytes = kHeadDim * 2;

  // bf16 where only fp16 has a matrix unit: as fp16, and once more by the featured loop, which is exact for
  // any values, if not all of them can be that.
  static constexpr bool kNarrow =
      !kFeatured && !kPacked && kDType == DType::bf16 && kTraits.unit == MatrixUnit::dot2;
  using Convert = typename ConvertOf<kNarrow>::Type;

  using Unit = UnitOf<kGfx, kNarrow ? DType::fp16 : kDType>;
  using Keys = KeyStage<Unit, kKeys, kHeadDim, kTile.threads, kConfig.lean>;
  using Values = ValueStage<Unit, kKeys, kHeadDim, kTile.threads, kConfig.lean>;
  using Q = Query<Unit, kHeadDim, kConfig.query_steps, kConfig.lean>;
  using P = Probabilities<Unit, kKeys, kDType, kConfig.lean, kConfig.early != 0>;
  using Drop = Dropout<Unit, kKeys>;
  using TileWindow = Window<kKeys, kRowBytes, kTraits.buffer_word3>;
  using QueryWindow = Window<Unit::kN, kRowBytes, kTraits.buffer_word3>;
  using SumWindow = Window<Unit::kN, sizeof(float), kTraits.buffer_word3>;

  static constexpr int kScoreSteps = kKeys / Unit::kM;
  static constexpr int kOutSteps = kHeadDim / Unit::kM / (kPacked ? kConfig.waves : 1);
  static_assert(!kPacked || kOutSteps * Unit::kM * kConfig.waves == kHeadDim, "a wave has whole steps");
  static constexpr int kWaveQueries = kPacked ? 0 : Q::kLdsBytes;  // packed rows are those of all waves
  static constexpr int kWaveLds = kWaveQueries + P::kLdsBytes;
  static constexpr int kTilesLds = Keys::Tile::kBytes + Values::Tile::kBytes;
  static constexpr int kLdsBytes = kTilesLds + Q::kLdsBytes - kWaveQueries + kConfig.waves * kWaveLds;
  static_assert(kLdsBytes <= kTraits.lds_bytes, "the tiles do not fit into LDS");
  static_assert(!kPacked || !kConfig.lean, "packed rows are not near each other");

  using State = typename StateOf<Unit, kScoreSteps, !kFeatured, kConfig.lean>::Type;
  // Of head dims 96 and 192 an unrolled loop's loads take more registers than there are.
  static constexpr bool kUnrolls = kTraits.unit != MatrixUnit::dot2 || (kHeadDim & (kHeadDim - 1)) == 0;

  // What one is of what the products give.
  static constexpr float kOutUnit = kNarrow ? 1.0f / (1 << kNarrowScale) : 1;
  static constexpr float kScoreUnit = kOutUnit * kOutUnit;

  using Operands = Early<typename Unit::A, kConfig.early>;
  using Scores = typename Unit::C[kScoreSteps];
  using Out = typename Unit::C[kOutSteps];

  // False: nothing is written, because not all values could be converted.  The same for all threads.
  FA_DEVICE static bool run(const FwdParams& params, LdsBytes lds) {
    const Sequence found = fa::sequence(params, __builtin_amdgcn_workgroup_id_z());
    const Sequence sequence{uniform(found.q_first), uniform(found.seqlen_q), uniform(found.k_first),
                            uniform(found.seqlen_k)};
    const Forward forward(params, sequence, lds);
    const int block_row = forward.block() * kTile.block_m;
    return block_row >= sequence.seqlen_q * forward.group || forward.attend(block_row);
  }

 private:
  // The keys that the block's tiles run through, those that the wave sees, and those that all its rows see.
  struct Tiles {
    int begin, end;
    int wave_begin, wave_end;
    int unmasked_begin, unmasked_end;

    FA_DEVICE bool seen(int first) const { return first < wave_end && first + kKeys > wave_begin; }
  };

  // K or V of one sequence and head.
  struct Source {
    Matrix matrix;
    int64_t page_bytes;
  };

  const FwdParams& params;
  const Sequence sequence;
  const int batch, head, thread, lane, wave;  // head: of k and v where rows are packed
  const int group;                            // heads of q that are packed
  const Visibility visible;
  const LdsBytes k_tile, v_tile, wave_lds;

  FA_DEVICE Forward(const FwdParams& params, const Sequence& sequence, LdsBytes lds)
      : params(params),
        sequence(sequence),
        batch(__builtin_amdgcn_workgroup_id_z()),
        head(__builtin_amdgcn_workgroup_id_y()),
        thread(__builtin_amdgcn_workitem_id_x()),
        lane(thread % Unit::kWave),
        wave(uniform(thread / Unit::kWave)),
        group(kPacked ? uniform(params.nheads / params.nheads_k) : 1),
        visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right},
        k_tile(lds),
        v_tile(lds + Keys::Tile::kBytes),
        wave_lds(lds + kLdsBytes - (kConfig.waves - wave) * kWaveLds) {}

  // Blocks of rows that the longest sequence has; the grid has as many for each part of the keys.
  FA_DEVICE static int blocks(const FwdParams& params, int group) {
    return blocks_of_rows(params.seqlen_q * group, kTile.block_m);
  }
  // The last blocks, which see the most keys where right is limited, begin first.
  FA_DEVICE int block() const {
    const int x = __builtin_amdgcn_workgroup_id_x();
    if (kPacked) return uniform(x % blocks(params, group));
    return params.window_right < 0 ? x : blocks(params, 1) - 1 - x;
  }
  FA_DEVICE static int part_of_grid(const FwdParams& params, int group) {
    const int x = __builtin_amdgcn_workgroup_id_x();
    return params.splits > 1 ? uniform(x / blocks(params, group)) : 0;
  }
  FA_DEVICE int query_of(int row) const {
    return kPacked ? static_cast<int>(static_cast<unsigned>(row) / static_cast<unsigned>(group)) : row;
  }
  FA_DEVICE int head_of(int row) const { return kPacked ? head * group + row - query_of(row) * group : head; }

  FA_DEVICE bool attend(int block_row) const {
    const int wave_row = kPacked ? block_row : block_row + wave * Unit::kN;
    const Tiles tiles = kPacked ? tiles_of_part(block_row) : tiles_of(block_row, wave_row);
    const Slopes slopes(*this, wave_row);
    const Bias bias{__builtin_fabsf(params.scale), params.softcap, slopes.any()};
    const bool biased = kFeatured && uniform(static_cast<int>(bias.any())) != 0;
    const Drop dropout = dropout_of();
    const float scale = scale_is_zero() ? 1 : __builtin_fabsf(params.scale);
    State softmax((biased ? 1 : scale * Bias::kLog2e) * kScoreUnit);
    Convert convert;
    Out o = {};
#pragma unroll
    for (int step = 0; step < kOutSteps; ++step) Unit::settle(o[step]);
    if (tiles.begin < tiles.end) {
      // Beyond the last tile of a part nothing is read.
      const int rows = kPacked ? tiles.end : sequence.seqlen_k;
      const Source k = source(params.k, params.k_batch, params.k_head, params.k_row, rows);
      const Source v = source(params.v, params.v_batch, params.v_head, params.v_row, rows);
      const Q query = query_of_block(wave_row, convert);
      const auto products = [&](Scores& s, const Operands& begun) {
        softmax.begin(s);
        add_scores(s, query, begun);
      };
      const auto weights = [&](Scores& s, int first) {
        if (biased) {
          bias.template apply<Unit, kKeys>(
              s, first, lane,
              [&](int c) { return visible.diagonal(query_of(wave_row + here(Unit::column(lane, c)))); },
              [&](int c) { return slopes.of(c); });
        }
        if (first < tiles.unmasked_begin) mask_begin(s, first, wave_row);
        if (first + kKeys > tiles.unmasked_end) mask_end(s, first, wave_row);
        softmax.template update<kOutSteps>(s, o, lane);
      };
      const auto scores = [&](Scores& s, int first) {
        const bool dropping = kDrops && dropout.any();
        const uint32_t kept = dropping ? kept_bits(dropout, first, wave_row) : 0;
        products(s, begin_scores());
        weights(s, first);
        if (dropping) Drop::apply(s, kept);
      };
      if constexpr (kConfig.one_stage) {
        one_stage(tiles, k, v, o, convert, scores);
      } else if constexpr (kConfig.early != 0) {
        in_turn(tiles, k, v, o, convert, products, weights);
      } else {
        two_stages(tiles, k, v, o, convert, scores);
      }
    }
    if (kNarrow && !all_threads(convert.exact())) return false;
    store_rows(wave_row, o, softmax);
    return true;
  }

  // Whether a condition holds for all threads; ends the use of LDS.
  FA_DEVICE bool all_threads(bool condition) const {
    using Flag = __attribute__((address_space(3))) int*;
    const Flag flags = (Flag)k_tile;
    workgroup_barrier();
    const int failed = any_lane<Unit::kWave>(!condition);
    flags[wave] = failed;
    workgroup_barrier();
    const bool any = any_lane<Unit::kWave>(flags[lane % kConfig.waves] != 0);
    workgroup_barrier();
    return !any;
  }

  FA_DEVICE Q query_of_block(int wave_row, Convert& convert) const {
    const QuerySign sign = kConfig.lean ? QuerySign::told_by_bits(params.scale) : QuerySign(params.scale);
    if constexpr (kPacked) {
      const PackedWindow window{
          query_matrix().base,      params.q_row * 2, params.q_head * 2, group, wave_row,
          sequence.seqlen_q * group};
      return Q(k_tile + kTilesLds, window, sign, convert, lane, wave == 0);
    } else {
      return Q(wave_lds, QueryWindow(query_matrix(), wave_row), sign, convert, lane);
    }
  }

  // ALiBi slopes of a wave's columns.
  struct Slopes {
    static constexpr int kCount = kPacked ? Unit::kColumns : 1;
    float slope[kCount];
    bool given;

    FA_DEVICE Slopes(const Forward& f, int wave_row) : slope{}, given(false) {
      if (!kFeatured || f.params.alibi_slopes == nullptr) return;
      const float* slopes = f.params.alibi_slopes + f.batch * f.params.alibi_batch;
      if constexpr (kPacked) {
        given = true;
        const int last = f.sequence.seqlen_q * f.group - 1;
#pragma unroll
        for (int c = 0; c < kCount; ++c) {
          const int row = wave_row + Unit::column(f.lane, c);
          slope[c] = slopes[f.head_of(row < last ? row : last)];
        }
      } else {
        slope[0] = uniform(slopes[f.head]);
        given = slope[0] != 0;
      }
    }
    FA_DEVICE bool any() const { return given; }
    FA_DEVICE float of(int c) const { return slope[kPacked ? c : 0]; }
  };

  // Of the tiles that the block's rows see, those of the workgroup's part.
  FA_DEVICE Tiles tiles_of_part(int block_row) const {
    const int rows = sequence.seqlen_q * group;
    const int past = rows - block_row < Unit::kN ? rows : block_row + Unit::kN;
    const int first = uniform(query_of(block_row)), last = uniform(query_of(past - 1));
    const int begin = visible.begin(first), end = visible.end(last);
    const Part tiles =
        part_of(begin / kKeys, (end + kKeys - 1) / kKeys, part_of_grid(params, group), params.splits);
    const int tiles_end = tiles.end * kKeys;
    return {tiles.begin * kKeys, tiles_end < end ? tiles_end : end, begin, end, visible.begin(last),
            visible.end(first)};
  }

  FA_DEVICE Tiles tiles_of(int block_row, int wave_row) const {
    return {visible.begin(block_row) / kKeys * kKeys,
            visible.end_of_rows(block_row, kTile.block_m),
            visible.begin(wave_row),
            visible.end_of_rows(wave_row, Unit::kN),
            visible.begin(wave_row + Unit::kN - 1),
            visible.end(wave_row)};
  }

  // The next tile's K and V are on their way while a tile is computed.
  template <class MakeScores>
  FA_DEVICE void two_stages(const Tiles& tiles, const Source& k, const Source& v, Out& o, Convert& convert,
                            const MakeScores& scores) const {
    const typename P::Place place(wave_lds + kWaveQueries, lane);
    Keys next_k;
    Values next_v;
    load(next_k, k, tiles.begin);
    load(next_v, v, tiles.begin);
    for (int first = tiles.begin; first < tiles.end; first += kKeys) {
      workgroup_barrier();  // all waves are done with the last tile
      next_k.store(k_tile, convert, thread);
      next_v.store(v_tile, convert, thread);
      workgroup_barrier();
      load(next_k, k, first + kKeys);
      load(next_v, v, first + kKeys);
      if (tiles.seen(first)) {
        Scores s;
        scores(s, first);
        const P p(place, s);
        add_values(o, p);
      }
    }
  }

  // Likewise; V is replaced while the first product begins and K when it ends, so that no wave waits at a
  // barrier for what it has just stored.
  template <class Products, class Weights>
  FA_DEVICE void in_turn(const Tiles& tiles, const Source& k, const Source& v, Out& o, Convert& convert,
                         const Products& products, const Weights& weights) const {
    static_assert(!kDrops, "what is dropped would have to be found before the products");
    const typename P::Place place(wave_lds + kWaveQueries, lane);
    Keys next_k;
    Values next_v;
    load(next_k, k, tiles.begin);
    load(next_v, v, tiles.begin);
    next_k.store(k_tile, convert, thread);
    load(next_k, k, tiles.begin + kKeys);
    const LdsBytes k_place = here(Keys::place(k_tile, thread));
    workgroup_barrier();
    for (int first = tiles.begin; first < tiles.end; first += kKeys) {
      const Operands begun = begin_scores();
      next_v.store(v_tile, convert, thread);
      load(next_v, v, first + kKeys);
      Scores s;
#pragma unroll
      for (int step = 0; step < kScoreSteps; ++step) s[step] = anything<typename Unit::C>();
      if (tiles.seen(first)) products(s, begun);
      workgroup_barrier();  // all waves are done with K, and V is there
      next_k.store_from(k_place, convert, thread);
      if (tiles.seen(here_uniform(first))) {
        weights(s, first);
        const P p(place, s);
        add_values(o, p);
      }
      load(next_k, k, first + 2 * kKeys);
      workgroup_barrier();  // all waves are done with V, and K is there
    }
  }

  // V is on its way during the first product, the next K during the second.
  template <class MakeScores>
  FA_DEVICE void one_stage(const Tiles& tiles, const Source& k, const Source& v, Out& o, Convert& convert,
                           const MakeScores& scores) const {
    const typename P::Place place(wave_lds + kWaveQueries, lane);
    {
      Keys next_k;
      load(next_k, k, tiles.begin);
      next_k.store(k_tile, convert, thread);
    }
    workgroup_barrier();
    for (int first = tiles.begin; first < tiles.end; first += kKeys) {
      Values next_v;
      load(next_v, v, first);
      Scores s;
      scores(s, first);
      const P p(place, s);
      next_v.store(v_tile, convert, mover());
      workgroup_barrier();
      Keys next_k;
      load(next_k, k, first + kKeys);
      add_values(o, p);
      next_k.store(k_tile, convert, mover());
      workgroup_barrier();
    }
  }

  FA_DEVICE Source source(const void* base, int64_t batch_stride, int64_t head_stride, int64_t row_stride,
                          int rows) const {
    const bool paged = kFeatured && params.block_table != nullptr;
    const bool ragged = params.cu_seqlens_k != nullptr;
    const int head_k = kPacked || (kConfig.lean && params.nheads == params.nheads_k)
                           ? head
                           : uniform(head / (params.nheads / params.nheads_k));
    const int64_t place = paged || ragged ? 0 : place_of_sequence();
    const int64_t offset =
        place * batch_stride + head_k * head_stride + (paged ? 0 : sequence.k_first * row_stride);
    return {{static_cast<const char*>(base) + offset * 2, row_stride * 2, rows}, batch_stride * 2};
  }

  FA_DEVICE int place_of_sequence() const {
    if (kConfig.lean && params.cache_batch_idx == nullptr) return batch;
    return uniform(place_in_cache(params, batch));
  }

  // The thread as it moves tiles.  Where registers are short, its addresses are computed for each tile.
  FA_DEVICE int mover() const { return kFeatured ? here(thread) : thread; }

  // The lane as it reads tiles, likewise.
  FA_DEVICE int reader() const { return kFeatured ? here(lane) : lane; }

  template <class Stage>
  FA_DEVICE void load(Stage& stage, const Source& source, int first) const {
    if (!kFeatured || params.block_table == nullptr) {
      stage.load(TileWindow(source.matrix, first), mover());
    } else {
      const PagedMatrix matrix{source.matrix.base,  source.matrix.row_bytes,
                               source.page_bytes,   params.block_table + batch * params.table_batch,
                               source.matrix.rows,  here_uniform(params.page),
                               params.num_pages - 1};
      stage.load(PagedWindow{matrix, first}, mover());
    }
  }

  FA_DEVICE bool scale_is_zero() const { return kConfig.lean ? is_zero(params.scale) : params.scale == 0; }

  FA_DEVICE int64_t batch_offset(int64_t batch_stride) const {
    return params.cu_seqlens_q == nullptr ? batch * batch_stride : 0;
  }

  FA_DEVICE Matrix query_matrix() const {
    const int64_t offset =
        batch_offset(params.q_batch) + head * group * params.q_head + sequence.q_first * params.q_row;
    return {static_cast<const char*>(params.q) + offset * 2, params.q_row * 2, sequence.seqlen_q};
  }

  FA_DEVICE Drop dropout_of() const {
    if (!kDrops || params.dropout_below == 0) return {0, {0, 0}};
    const auto word = [&](int i) {
      return static_cast<uint32_t>(uniform(static_cast<int>(params.rng_state[i])));
    };
    return {params.dropout_below, {word(0), word(1)}};
  }

  FA_DEVICE uint32_t kept_bits(const Drop& dropout, int first, int wave_row) const {
    return dropout.kept(first, reader(), [&](int c, unsigned group) {
      return dropout_words(dropout.key, batch, head, wave_row + Unit::column(reader(), c), group);
    });
  }

  // The operand of K for a step of the first product, which begins with all keys of the first run of k.
  FA_DEVICE typename Unit::A key_operand(int n) const {
    const int unit = (n / kScoreSteps * Unit::kK + Unit::run_begin(lane)) / 8;
    return Keys::Tile::template read<typename Unit::A>(Keys::Tile::period(k_tile, n % kScoreSteps),
                                                       Unit::a_row(reader()), unit);
  }

  FA_DEVICE Operands begin_scores() const {
    return Operands([&](int n) { return key_operand(n); });
  }

  // S^T += K * Q^T.
  FA_DEVICE void add_scores(Scores& s, const Q& query, const Operands& begun) const {
    if constexpr (kConfig.early != 0) {
      begun.template run<Q::kSteps * kScoreSteps>([&](int n) { return key_operand(n); },
                                                  [&](int n, typename Unit::A k) {
                                                    Unit::multiply(s[n % kScoreSteps], k,
                                                                   query.operand(n / kScoreSteps));
                                                  });
      return;
    }
    const int row = Unit::a_row(reader());
#pragma unroll kUnrolls ? Q::kUnroll : 2
    for (int i = 0; i < Q::kSteps; ++i) {
      const typename Unit::B q = query.operand(i);
      const int unit = (i * Unit::kK + Unit::run_begin(lane)) / 8;
#pragma unroll
      for (int step = 0; step < kScoreSteps; ++step) {
        const auto k =
            Keys::Tile::template read<typename Unit::A>(Keys::Tile::period(k_tile, step), row, unit);
        if (i == 0) {
          Unit::multiply_first(s[step], k, q);
        } else {
          Unit::multiply(s[step], k, q);
        }
        end_of_step(i * kScoreSteps + step);
      }
    }
  }

  // O^T += V^T * P^T.
  FA_DEVICE void add_values(Out& o, const P& p) const {
    if constexpr (kConfig.early != 0) {
      const LdsBytes tile = Values::Tile::period(v_tile, first_out_step());
      typename Unit::B b[P::kSteps];
      const auto value = [&](int n) {
        const int i = n / kOutSteps;
        if (n % kOutSteps == 0) b[i] = p.operand(i);
        return Values::Tile::template read<typename Unit::A>(Values::Tile::period(tile, n % kOutSteps),
                                                             Unit::a_row(lane),
                                                             (i * Unit::kK + Unit::run_begin(lane)) / 8);
      };
      Operands(value).template run<P::kSteps * kOutSteps>(
          value, [&](int n, typename Unit::A v) { Unit::multiply(o[n % kOutSteps], v, b[n / kOutSteps]); });
      return;
    }
#pragma unroll kUnrolls ? P::kUnroll : 1
    for (int i = 0; i < P::kSteps; ++i) {
      const typename Unit::B b = p.operand(i);
      const LdsBytes tile = Values::Tile::period(v_tile, first_out_step());
      const int unit = (i * Unit::kK + Unit::run_begin(lane)) / 8;
#pragma unroll
      for (int step = 0; step < kOutSteps; ++step) {
        Unit::multiply(o[step],
                       Values::Tile::template read<typename Unit::A>(Values::Tile::period(tile, step),
                                                                     Unit::a_row(lane), unit),
                       b);
        end_of_step(step);
      }
    }
  }

  FA_DEVICE static void end_of_step(int step) {
    if constexpr (kConfig.ahead != 0) {
      if (step % kConfig.ahead == kConfig.ahead - 1) __builtin_amdgcn_sched_barrier(0);
    }
  }

  // Scores of keys from end(row) on become -inf.
  FA_DEVICE void mask_end(Scores& s, int first, int wave_row) const {
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
      const int left = visible.end(query_of(wave_row + here(Unit::column(lane, c)))) - first -
                       Unit::held_begin(lane, kKeys);
      mask(s, c, [=](int key) { return key < left; });
    }
  }

  // Scores of keys before begin(row) become -inf.
  FA_DEVICE void mask_begin(Scores& s, int first, int wave_row) const {
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
      const int left = visible.begin(query_of(wave_row + here(Unit::column(lane, c)))) - first -
                       Unit::held_begin(lane, kKeys);
      mask(s, c, [=](int key) { return key >= left; });
    }
  }

  template <class Seen>
  FA_DEVICE static void mask(Scores& s, int c, Seen seen) {
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
      Unit::hold(s[step]);
#pragma unroll
      for (int row = 0; row < Unit::kRows; ++row) {
        float& score = reinterpret_cast<float*>(&s[step])[row * Unit::kColumns + c];
        score = seen(Unit::held_step(step * Unit::kRows + row)) ? score : -__builtin_inff();
      }
      Unit::hold(s[step]);
    }
  }

  template <class State>
  FA_DEVICE void store_rows(int wave_row, Out& o, State& softmax) const {
    softmax.join_sums(lane);
#pragma unroll
    for (int step = 0; step < kOutSteps; ++step) Unit::settle(o[step]);
    if constexpr (kConfig.lean) {
      store_near(wave_row, o, softmax);
    } else {
#pragma unroll
      for (int c = 0; c < Unit::kColumns; ++c) {
        const int row = wave_row + Unit::column(lane, c);
        if (row < sequence.seqlen_q * group) store_row(row, o, softmax, c);
      }
    }
  }

  // Rows of queries, by offsets of 32 bits from the wave's first.
  template <class State>
  FA_DEVICE void store_near(int wave_row, const Out& o, const State& softmax) const {
    const int64_t in_batch = params.cu_seqlens_q == nullptr ? batch : 0;
    const int64_t out_at = in_batch * params.o_batch + head * params.o_head + sequence.q_first * params.o_row;
    const int64_t lse_at = in_batch * params.lse_batch + head * params.lse_head + sequence.q_first;
    char* const out_base = static_cast<char*>(params.out) + out_at * 2;
    const char* const lse_base = reinterpret_cast<const char*>(params.lse + lse_at);
    const QueryWindow out({out_base, params.o_row * 2, sequence.seqlen_q}, wave_row);
    const SumWindow lse({lse_base, sizeof(float), sequence.seqlen_q}, wave_row);
    const float kept = kDrops && params.dropout_below != 0 ? params.dropout_scale : 1;
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
      const int column = Unit::column(lane, c);
      if (wave_row + column >= sequence.seqlen_q) continue;
      const int held = held_byte<Unit, kHeadDim>(lane, 0);
      store_column<Unit, kDType, kOutSteps>(
          o, c, softmax.inverse_sum(c) * (kOutUnit * kept),
          [&](int byte, auto words) { out.write(column, held + byte, words); });
      if (Unit::held_begin(lane, kKeys) == 0) lse.write(column, 0, reported(softmax.log_sum_exp(c)));
    }
  }

  template <class State>
  FA_DEVICE void store_row(int row, const Out& o, const State& softmax, int c) const {
    // Loaded here, so that they take no scalar registers through the loop.
    const FwdParams& params = kPacked ? once_more(kernel_arguments()) : this->params;
    const int64_t at = sequence.q_first + query_of(row);
    const int head_q = head_of(row);
    const int64_t in_batch = params.cu_seqlens_q == nullptr ? batch : 0;
    const int64_t lse_at = in_batch * params.lse_batch + head_q * params.lse_head + at;
    const bool stores_lse = Unit::held_begin(lane, kKeys) == 0 && (!kPacked || wave == 0);
    if (kPacked && params.splits > 1) {
      const int64_t partial = part_of_grid(params, group) * params.partial_split + lse_at;
      if (stores_lse) {
        params.partial_lse[partial] = softmax.sees_a_key(c) ? softmax.log_sum_exp(c) : -__builtin_inff();
      }
      if (!softmax.sees_a_key(c)) return;
      float* out = params.partial_out + partial * kHeadDim;
      store_column_fp32<Unit, kHeadDim, kOutSteps>(o, c, softmax.inverse_sum(c), out, lane, first_out_step());
      return;
    }
    char* out = static_cast<char*>(params.out) +
                (in_batch * params.o_batch + head_q * params.o_head + at * params.o_row) * 2;
    const float kept = kDrops && params.dropout_below != 0 ? params.dropout_scale : 1;
    const float factor = softmax.inverse_sum(c) * (kOutUnit * kept);
    char* held = out + held_byte<Unit, kHeadDim>(lane, first_out_step());
    store_column<Unit, kDType, kOutSteps>(o, c, factor, [=](int byte, auto words) {
      *reinterpret_cast<decltype(words)*>(held + byte) = words;
    });
    if (stores_lse) params.lse[lse_at] = reported(softmax.log_sum_exp(c));
  }

  // Upstream reports +inf where scores are NaN, too.
  FA_DEVICE static float reported(float lse) { return lse == lse ? lse : __builtin_inff(); }

  // Of the steps of head_dim, the wave's first.
  FA_DEVICE int first_out_step() const { return kPacked ? wave * kOutSteps : 0; }
};

// Defines the kernel `name` for one kind of rows, divided as these two of config.hpp say.
#define FA_FORWARD_KERNEL(name, dtype, head_dim, rows, config_of, tile_of)                                   \
  extern "C" __attribute__((global))                                                                         \
  __attribute__((amdgpu_flat_work_group_size(tile_of(fa::kCurrentGfx, dtype, head_dim).threads,              \
                                             tile_of(fa::kCurrentGfx, dtype, head_dim).threads)))            \
  __attribute__((amdgpu_waves_per_eu(config_of(fa::kCurrentGfx, dtype, head_dim).waves_per_simd))) void      \
  name(const fa::FwdParams params) {                                                                         \
    const fa::Arguments arguments = fa::kernel_arguments();                                                  \
    using Plain = fa::Forward<fa::kCurrentGfx, dtype, head_dim, false, rows>;                                \
    using Featured = fa::Forward<fa::kCurrentGfx, dtype, head_dim, true, rows>;                              \
    __attribute__((shared, aligned(16))) static char lds[fa::larger(Plain::kLdsBytes, Featured::kLdsBytes)]; \
    if (fa::featured(params) || !Plain::run(params, (fa::LdsBytes)lds)) {                                    \
      Featured::run(fa::once_more(arguments), (fa::LdsBytes)lds);                                            \
      asm volatile("; keeps the ends of the two apart, which must not share registers");                     \
    }                                                                                                        \
  }

#define FA_FORWARD(name, dtype, head_dim) \
  FA_FORWARD_KERNEL(name, dtype, head_dim, fa::Rows::queries, fa::fwd_config, fa::fwd_tile)
#define FA_DECODE(name, dtype, head_dim) \
  FA_FORWARD_KERNEL(name, dtype, head_dim, fa::Rows::packed, fa::decode_config, fa::decode_tile)

}  // namespace fa
