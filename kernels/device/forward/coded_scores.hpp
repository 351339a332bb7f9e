// Decode over keys and values of 8 bits: what differs from the other forward kernels. Codes become fp16 in
// LDS (memory/codes.hpp), so products, softmax and epilogue are shared. Scores are multiplied by the descale
// of K before the softmax, and O by that of V after the last tile.
//
// If each key has its own descale, scores are multiplied by K's one by one, and probabilities by V's: divided
// by `most`, a power of two that no descale so far exceeds, so they stay in fp16's range. O is divided
// likewise, and corrected when `most` rises.
#pragma once

#include "device/forward/parts/block.hpp"
#include "device/forward/parts/source.hpp"
#include "device/memory/codes/coded_query.hpp"

namespace fa {

FA_DEVICE const CodedParams& coded_params(const FwdParams& params) {
  return reinterpret_cast<const CodedParams&>(params);
}

// A descale, or any number if none is given: it can be loaded without a branch.
struct OneDescale {
  __attribute__((address_space(4))) const float* at;
  bool given;
};

// Where the descales of K or V are.
struct DescalesOf {
  const float* base;
  int64_t batch, row, head;

  FA_DEVICE static DescalesOf keys(const CodedParams& p) {
    return {p.k_descale, p.k_descale_batch, p.k_descale_row, p.k_descale_head};
  }
  FA_DEVICE static DescalesOf values(const CodedParams& p) {
    return {p.v_descale, p.v_descale_batch, p.v_descale_row, p.v_descale_head};
  }

  // The descale of the block's head, or 1.
  template <class B>
  FA_DEVICE float of_head(const B& block) const {
    using Uniform = __attribute__((address_space(4))) const float*;
    return base == nullptr ? 1 : ((Uniform)base)[block.batch * batch + block.head * head];
  }
  template <class B>
  FA_DEVICE OneDescale one(const B& block, bool of_heads) const {
    using Uniform = __attribute__((address_space(4))) const float*;
    const bool given = of_heads && base != nullptr;
    const Uniform own = (Uniform)base + block.batch * batch + block.head * head;
    return {given ? own : (Uniform)kernel_arguments(), given};
  }
};

// K or V in global memory, and how it is read.
template <class Codes>
struct CodedSource {
  Source codes, descales;
  KeyPlace place;
  bool of_values;
  const Codes& how;
};

// Strides in elements of `bytes` bytes.
FA_DEVICE Source coded_rows(const KeyPlace& place, const void* base, int64_t batch_stride,
                            int64_t head_stride, int64_t row_stride, int bytes) {
  const uint64_t at = place.batch * static_cast<uint64_t>(batch_stride) +
                      place.head * static_cast<uint64_t>(head_stride) +
                      static_cast<uint64_t>(place.first) * static_cast<uint32_t>(row_stride);
  const int64_t row_bytes = static_cast<int64_t>(static_cast<uint32_t>(row_stride) * bytes);
  return {{static_cast<const char*>(base) + at * bytes, row_bytes, place.rows}, batch_stride * bytes};
}

FA_DEVICE Source descale_rows(const KeyPlace& place, bool of_values, const CodedParams& p) {
  const DescalesOf of = of_values ? DescalesOf::values(p) : DescalesOf::keys(p);
  return coded_rows(place, of.base, of.batch, of.head, of.row, sizeof(float));
}

FA_DEVICE PagedRows paged_rows(const Source& source, const FwdParams& params, int batch) {
  return {source.rows.base,    source.rows.row_bytes,
          source.page_bytes,   params.block_table + batch * params.table_batch,
          source.rows.rows,    params.page,
          params.num_pages - 1};
}

// As the other `load`, with descales. Arguments for few calls are loaded here: the loop needs the scalar
// registers.
template <class B, class Stage>
FA_DEVICE void load(const B& block, Stage& stage, const CodedSource<typename B::Convert>& source, int first) {
  const bool per_key = source.how.per_key(source.of_values);
  if (B::kFeatured && source.how.paged()) {
    const CodedParams& p = coded_params(reloaded(kernel_arguments()));
    stage.load(PagedView{paged_rows(source.codes, p.fwd, block.batch), first}, block.mover());
    if (!per_key) return;
    const Source descales = descale_rows(source.place, source.of_values, p);
    const PagedView view{paged_rows(descales, p.fwd, block.batch), first};
#pragma unroll
    for (int i = 0; i < B::Descales::kHeld; ++i) {
      const int key = B::Descales::key(i, block.lane);
      stage.descales.held[i] = view.template read<float>(view.group(key), key, 0);
    }
  } else {
    stage.load(typename B::template TileView<Stage>(source.codes.rows, first), block.mover());
    if (!per_key) return;
    // Also where the plain loop has no scalar registers left.
    constexpr bool kReloads = B::kFeatured || B::kHeadDim > 128;
    const Source descales =
        kReloads ? descale_rows(source.place, source.of_values, coded_params(reloaded(kernel_arguments())))
                 : source.descales;
    const typename B::DescaleView view(descales.rows, first);
#pragma unroll
    for (int i = 0; i < B::Descales::kHeld; ++i) {
      stage.descales.held[i] = view.template read<float>(B::Descales::key(i, block.lane), 0);
    }
  }
}

template <class B>
FA_DEVICE PackedView packed_queries(const B& block, int wave_row) {
  const FwdParams& p = block.params;
  return {query_rows(block).base,
          p.q_row * 2,
          p.q_head * 2,
          block.group,
          wave_row,
          block.sequence.seqlen_q * block.group};
}

// Replaces CodedScores in kernels without codes.
template <class B>
struct PlainScores {
  const B& block;

  FA_DEVICE PlainScores(const B& block, int) : block(block) {}
  FA_DEVICE void begin(typename B::Convert&) const {}
  FA_DEVICE PackedView queries(int wave_row) const { return packed_queries(block, wave_row); }
  FA_DEVICE Source keys(const KeyPlace& place) const {
    const FwdParams& p = block.params;
    return source_of(place, p.k, p.k_batch, p.k_head, p.k_row);
  }
  FA_DEVICE Source values(const KeyPlace& place) const {
    const FwdParams& p = block.params;
    return source_of(place, p.v, p.v_batch, p.v_head, p.v_row);
  }
  FA_DEVICE float scale() const { return block.params.scale; }
  FA_DEVICE bool scale_is_zero() const {
    return B::kConfig.scalar_scale ? is_zero(block.params.scale) : block.params.scale == 0;
  }
  FA_DEVICE void descale(typename B::Scores&) const {}
  FA_DEVICE void weigh(typename B::Scores&, typename B::Out&) const {}
  FA_DEVICE void finish(typename B::Out&) const {}
  FA_DEVICE float factor_of_out() const { return 1; }
};

template <class B>
struct CodedQueryOf {
  using Unit = typename B::Unit;
  static constexpr bool kRowInOneLane = Unit::run_begin(Unit::kWave - 1) == 0;
  using Type = CodedQuery<Unit, B::kDType, B::kHeadDim, B::kOwnKeys && Unit::kRun == 8 && !kRowInOneLane>;
};

// `Query` has a power of two for queries of bf16.
template <class B, class Query = typename CodedQueryOf<B>::Type>
struct CodedScores {
  using Unit = typename B::Unit;
  static_assert(B::kConfig.schedule == Schedule::two_stages || B::kInPlace,
                "tiles.toml: V's descales come with K's");

  const B& block;
  const typename B::Convert* codes = nullptr;
  Query query;
  float of_scores;  // softmax_scale of products
  float of_values;  // of O with descales of heads; with kEarlyLoads. Others load them after the loop
  float most;       // 2^-100 before the first key; in a vector register

  FA_DEVICE CodedScores(const B& block, int wave_row)
      : CodedScores(block, Query(packed_queries(block, wave_row), block.lane)) {}

  FA_DEVICE CodedScores(const B& block, const Query& query)
      : block(block), query(query), most(here(0x1p-100f)) {
    const CodedParams& p = coded_params(block.params);
    if constexpr (B::kEarlyQuery) {
      if constexpr (!B::kFeatured) load_places<!B::kWholeCodes>(p);  // these need a factor, too
      const OneDescale k = DescalesOf::keys(p).one(block, p.per_key == 0);
      const OneDescale v = DescalesOf::values(p).one(block, p.per_key == 0);
      float of_k = *k.at, of_v = *v.at;
      asm volatile("" : "+s"(of_k), "+s"(of_v));  // one wait for both
      const float unit = B::Convert::unit(p.format);
      of_scores = uniform(p.fwd.scale * (k.given ? of_k : 1) * (unit * query.inverse));
      of_values = uniform((v.given ? of_v : 1) * unit);
      return;
    }
    const float of_k = p.per_key != 0 ? 1 : DescalesOf::keys(p).of_head(block);
    of_scores = uniform(p.fwd.scale * of_k * (B::Convert::unit(p.format) * query.inverse));
    if constexpr (B::kEarlyLoads) {
      const float of_v = p.per_key != 0 ? 1 : DescalesOf::values(p).of_head(block);
      of_values = uniform(of_v * B::Convert::unit(p.format));
    }
  }

  // Call once before the other functions.
  FA_DEVICE void begin(typename B::Convert& convert) {
    convert.begin(coded_params(block.params));
    codes = &convert;
  }

  FA_DEVICE const Query& queries(int) const { return query; }
  FA_DEVICE CodedSource<typename B::Convert> keys(const KeyPlace& place) const {
    const CodedParams& p = coded_params(block.params);
    return {coded_rows(place, p.fwd.k, p.fwd.k_batch, p.fwd.k_head, p.fwd.k_row, 1),
            descale_rows(place, false, p), place, false, *codes};
  }
  FA_DEVICE CodedSource<typename B::Convert> values(const KeyPlace& place) const {
    const CodedParams& p = coded_params(block.params);
    return {coded_rows(place, p.fwd.v, p.fwd.v_batch, p.fwd.v_head, p.fwd.v_row, 1),
            descale_rows(place, true, p), place, true, *codes};
  }

  FA_DEVICE float scale() const { return of_scores; }
  FA_DEVICE bool scale_is_zero() const { return of_scores == 0; }

  FA_DEVICE void descale(typename B::Scores& s) const {
    in_place(s);
    if (!codes->per_key(false)) return;
    multiply(s, codes->of_keys);
    in_place(s);
  }

  FA_DEVICE void weigh(typename B::Scores& s, typename B::Out& o) {
    in_place(s);
    if (!codes->per_key(true)) return;
    if (any_lane<Unit::kWave>(codes->of_values.largest() > most)) raise(o);
    multiply(s, codes->of_values.factors(inverse_of(most)));
    in_place(s);
  }

  // Call after the last tile. With keys of their own, waves multiply O when they join it.
  FA_DEVICE void finish(typename B::Out& o) const {
    if constexpr (!B::kOwnKeys) times(o, factor_of_out());
  }

  FA_DEVICE float factor_of_out() const {
    if constexpr (B::kEarlyLoads) return codes->per_key(true) ? most * of_values : of_values;
    const CodedParams& p = coded_params(reloaded(kernel_arguments()));
    const float of_v = p.per_key == 0         ? DescalesOf::values(p).of_head(block)
                       : codes->per_key(true) ? most
                                              : 1;
    return of_v * B::Convert::unit(p.format);
  }

 private:
  // Of a power of two, exactly.
  FA_DEVICE static float inverse_of(float power) {
    return __builtin_bit_cast(float, 0x7f000000 - __builtin_bit_cast(uint32_t, power));
  }

  // Before and after arithmetic for some calls only: the others need no copies then, if scores stay in their
  // registers.
  FA_DEVICE static void in_place(typename B::Scores& s) {
    if constexpr (!B::kInPlace) return;
#pragma unroll
    for (int step = 0; step < B::kScoreSteps; ++step) Unit::settle(s[step]);
  }

  // Each score times the factor of its key.
  FA_DEVICE static void multiply(typename B::Scores& s, const typename B::Descales& factors) {
    each<0>(factors, [&](int f, float factor) {
#pragma unroll
      for (int c = 0; c < Unit::kColumns; ++c) {
        reinterpret_cast<float*>(&s[f / Unit::kRows])[f % Unit::kRows * Unit::kColumns + c] *= factor;
      }
    });
  }
  template <int f, class Action>
  FA_DEVICE static void each(const typename B::Descales& factors, const Action& action) {
    action(f, factors.template of<f>());
    if constexpr (f + 1 < B::Descales::kElements) each<f + 1>(factors, action);
  }

  FA_DEVICE static void times(typename B::Out& o, float factor) {
#pragma unroll
    for (int step = 0; step < B::kOutSteps; ++step) {
      Unit::settle(o[step]);
      o[step] *= typename Unit::C(factor);
      Unit::settle(o[step]);
    }
  }

  FA_DEVICE void raise(typename B::Out& o) {
    const float highest =
        across_lanes<Unit::kWave - 1>(codes->of_values.largest(), B::kOwnKeys ? here(block.lane) : block.lane,
                                      [](float a, float b) { return __builtin_fmaxf(a, b); });
    const uint32_t up = __builtin_bit_cast(uint32_t, uniform(highest)) + 0x007fffff;
    const float to = __builtin_bit_cast(float, up & 0x7f800000);
    const float now = to < 0x1p126f ? to : 0x1p126f;
    times(o, most * inverse_of(now));
    most = here(now);
  }
};

}  // namespace fa
