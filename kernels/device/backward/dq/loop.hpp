// The gradient of Q: a workgroup computes it for a block of queries of one head. Each wave has a step's
// columns of it (lanes are queries) and computes one tile of keys after another:
//
//   S^T  = K * Q^T     P  = exp(S - lse)
//   dP^T = V * dO^T    dS = P * (dP - delta)
//   dQ^T += K^T * dS^T
//
// In the plain loop both products start from minus lse and delta, which saves the subtractions.
#pragma once

#include "device/arch/current.hpp"
#include "device/backward/dq/block.hpp"

namespace fa {

// The mask of a wave's rows, if the kernel has one.
template <Masks kMasks = Masks::any, class B>
FA_DEVICE auto mask_of_rows(const B& block, int wave_row) {
  const float scale = Scoring::kLog2e / block.factor;
  if constexpr (B::kMasked) {
    const BwdParams& params = loaded_here(block.arguments);
    return DenseMask<B, kMasks>(block, wave_row, 1 / scale, reinterpret_cast<const MaskedBwdParams&>(params));
  } else {
    return NoMask<B>(block, wave_row, scale);
  }
}

// Adds all keys' part of the sums of a wave's queries.
template <class B>
FA_DEVICE void add_keys(const B& block, const BwdParams& params, int wave_row, const typename B::Tiles& tiles,
                        const typename B::Q& q, const typename B::Dout& dout, typename B::Sums& sums) {
  constexpr bool kShortPrologue = B::kConfig.short_prologue;
  const auto loaded = [&]() -> const BwdParams& {
    return kShortPrologue ? params : loaded_here(block.arguments);
  };
  typename B::Numbers numbers;
  if constexpr (!kShortPrologue) numbers = block.load_numbers(loaded(), wave_row);
  const typename B::Source source = block.source(loaded());
  typename B::Keys keys;
  typename B::Values values;
  Unchanged convert;
  const auto load = [&](int first) {
    keys.load([&](int) { return typename B::View(source.k, first); }, block.mover());
    values.load(typename B::ValueView(source.v, first), block.mover());
  };
  load(tiles.begin);
  if constexpr (kShortPrologue) numbers = block.load_numbers(loaded(), wave_row);
  const typename B::Starts starts = block.starts(numbers);
  const auto given = mask_of_rows(block, wave_row);
  typename decltype(given)::Early ahead;
  const auto load_mask = [&](int first) {
    if constexpr (B::kMaskAhead) given.begin(ahead, first, Flag{-1});
  };
  load_mask(tiles.begin);
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    tile_barrier<B::kArch>();  // all waves are done with the last tile
    keys.store_rows(block.lds, block.mover());
    keys.store_transposed(block.lds, block.mover());
    values.store(block.lds + B::kValuesAt, convert, block.mover());
    if constexpr (B::kConfig.interleaved) {
      load(first + B::kKeys);
      tile_barrier<B::kArch>();
    } else {
      tile_barrier<B::kArch>();
      load(first + B::kKeys);
    }
    if (tiles.seen(first)) {
      typename B::Result gradients, scores;
      B::template prioritise<1>();
      block.find(gradients, scores, block.lds, wave_row, first, tiles, q, dout, numbers, starts, given,
                 ahead);
      const typename B::P packed = packed_gradients<B>(gradients, scores);
      load_mask(first + B::kKeys);
      B::template prioritise<3>();
      block.add(block.lds, packed, sums);
      B::template prioritise<0>();
    } else if constexpr (B::kMaskAhead) {
      load_mask(first + B::kKeys);
    }
  }
}

// As above with two tiles in LDS: one is stored while the other is in use, with one barrier per tile.
template <class B>
FA_DEVICE void add_keys_row_major(const B& block, const BwdParams& params, int wave_row,
                                  const typename B::Tiles& tiles, const typename B::Q& q,
                                  const typename B::Dout& dout, typename B::Sums& sums) {
  const typename B::Source source = block.source(params);
  typename B::Keys keys;
  typename B::Values values;
  Unchanged convert;
  const auto load = [&](int first) {
    keys.load(typename B::View(source.k, first), block.mover());
    values.load(typename B::ValueView(source.v, first), block.mover());
  };
  const auto store = [&](int at) {
    keys.store(block.lds + at, convert, block.mover());
    values.store(block.lds + at + B::kValuesAt, convert, block.mover());
  };
  load(tiles.begin);
  const typename B::Numbers numbers = block.load_numbers(params, wave_row);
  const typename B::Starts starts = block.starts(numbers);
  const auto given = mask_of_rows(block, wave_row);
  typename decltype(given)::Early ahead;
  const auto load_mask = [&](int first) {
    if constexpr (B::kMaskAhead) given.begin(ahead, first, Flag{-1});
  };
  load_mask(tiles.begin);
  tile_barrier<B::kArch>();  // LDS is free
  int at = 0;
  store(at);
  load(tiles.begin + B::kKeys);
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    tile_barrier<B::kArch>();  // the tile is there, and all waves are done with the previous one
    const LdsBytes own = block.lds + at;
    at = B::kTilesBytes - at;
    store(at);
    load(first + 2 * B::kKeys);
    if (tiles.seen(first)) {
      typename B::Result gradients, scores;
      B::template prioritise<1>();
      block.find(gradients, scores, own, wave_row, first, tiles, q, dout, numbers, starts, given, ahead);
      const typename B::P packed = packed_gradients<B>(gradients, scores);
      load_mask(first + B::kKeys);
      B::template prioritise<3>();
      block.add(own, packed, sums);
      B::template prioritise<0>();
    } else if constexpr (B::kMaskAhead) {
      load_mask(first + B::kKeys);
    }
  }
}

// As above with loads straight into LDS.
template <Masks kMasks, class B>
FA_DEVICE void add_keys_direct(const B& block, const BwdParams& params, int wave_row,
                               const typename B::Tiles& tiles, const typename B::Q& q,
                               const typename B::Dout& dout, typename B::Sums& sums) {
  using Lines = typename B::Turned::Stage::Lines;
  const typename B::Source source = block.source(params);
  const Lines of_k(static_cast<uint32_t>(source.k.row_bytes), block.wave, block.lane);
  const Lines of_v(static_cast<uint32_t>(source.v.row_bytes), block.wave, block.lane);
  const char* k = source.k.base + tiles.begin * source.k.row_bytes;
  const char* v = source.v.base + tiles.begin * source.v.row_bytes;
  int last = source.k.rows - 1 - tiles.begin;  // counted from the next tile on
  const auto load = [&](int at) {
    const LdsBytes to = block.lds + at;
    if (last >= B::kKeys - 1) {
      of_k.load(k, to, block.wave);
      of_v.load(v, to + B::kValuesAt, block.wave);
    } else {
      of_k.load_end(k, last, to, block.wave, here(block.lane));
      of_v.load_end(v, last, to + B::kValuesAt, block.wave, here(block.lane));
    }
    k += static_cast<uint64_t>(of_k.row_bytes) * B::kKeys,
        v += static_cast<uint64_t>(of_v.row_bytes) * B::kKeys;
    last -= B::kKeys;
  };
  int at = 0;
  load(at);
  const auto given = mask_of_rows<kMasks>(block, wave_row);
  using Mask = decltype(given);
  const typename B::Numbers numbers =
      block.template load_numbers<B::template kLateLse<Mask>>(params, wave_row);
  const typename B::Starts starts = block.starts(numbers);
  typename Mask::Early ahead;
  if constexpr (B::kMaskSooner) given.begin(ahead, tiles.begin, Flag{-1});
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    wait_for_loads();
    tile_barrier<B::kArch>();  // the tile is there, and all waves are done with the previous one
    const LdsBytes own = block.lds + at;
    at = B::kTilesBytes - at;
    if (first + B::kKeys < tiles.end) load(at);
    // Also for hidden tiles: with a branch around the loads, the compiler would copy the loaded values.
    typename B::Result scores;
    [[maybe_unused]] const typename Mask::Early own_words = ahead;
    if constexpr (B::kMaskSooner) {
      if constexpr (!Mask::kHidesLast) given.start(scores, numbers.lse, ahead);
      given.begin(ahead, first + B::kKeys, Flag{-1});
    }
    if (tiles.seen(first)) {
      typename B::Result gradients;
      B::template prioritise<1>();
      block.find(gradients, scores, own, wave_row, first, tiles, q, dout, numbers, starts, given, own_words);
      typename B::P packed = packed_gradients<B>(gradients, scores);
      if constexpr (Mask::kHidesLast) given.hide(packed, own_words);
      B::template prioritise<3>();
      block.add(own, packed, sums);
      B::template prioritise<0>();
    }
  }
}

// As above, without waits for stores between the barriers: transposes are stored during the first products,
// and the next tile's rows during the last one.
template <class B>
FA_DEVICE void add_keys_early(const B& block, int wave_row, const typename B::Tiles& tiles,
                              const typename B::Q& q, const typename B::Dout& dout,
                              const typename B::Numbers& numbers, typename B::Sums& sums) {
  using Keys = typename B::Keys;
  using Values = typename B::Values;
  constexpr bool kFixed = !B::kFeatured && Keys::kFixed && Values::kLoads == 1;
  const typename B::Source source = block.source(loaded_here(block.arguments));
  Keys keys;
  Values values;
  Unchanged convert;
  typename Keys::Place place;
  int from = 0;
  LdsBytes values_at = block.lds + B::kValuesAt;
  if constexpr (kFixed) {
    place = Keys::place(block.lds, static_cast<uint32_t>(source.k.row_bytes), block.thread);
    from = here(Values::offset(static_cast<uint32_t>(source.v.row_bytes), block.thread));
    values_at = here(Values::place(values_at, block.thread));
  }
  const auto load = [&](int first) {
    if constexpr (kFixed) {
      keys.load_at(place, typename B::View(source.k, first), block.thread);
      values.unit[0] = typename B::ValueView(source.v, first).template read_at<u32x4>(from);
    } else {
      keys.load([&](int) { return typename B::View(source.k, first); }, block.mover());
      values.load(typename B::ValueView(source.v, first), block.mover());
    }
  };
  const auto store_rows = [&] {
    if constexpr (kFixed) {
      keys.store_rows_at(place, block.thread);
      values.store_from(values_at, convert, block.thread);
    } else {
      keys.store_rows(block.lds, block.mover());
      values.store(values_at, convert, block.mover());
    }
  };
  const typename B::Starts starts = block.starts(numbers);
  const auto given = mask_of_rows(block, wave_row);
  typename decltype(given)::Early ahead;
  const auto load_mask = [&](int first) {
    if constexpr (B::kMaskAhead) given.begin(ahead, first, Flag{-1});
  };
  load_mask(tiles.begin);
  load(tiles.begin);
  workgroup_barrier();  // LDS is free
  store_rows();
  for (int first = tiles.begin; first < tiles.end; first += B::kKeys) {
    workgroup_barrier();  // rows are there, and all waves are done with the last tile's transposes
    const bool seen = tiles.seen(first);
    if constexpr (kFixed) {
      keys.store_transposed_at(place, block.thread);
    } else {
      keys.store_transposed(block.lds, block.mover());
    }
    typename B::Result gradients, scores;
    typename B::P packed;
    if (seen) {
      block.find(gradients, scores, block.lds, wave_row, first, tiles, q, dout, numbers, starts, given,
                 ahead);
      packed = packed_gradients<B>(gradients, scores);
    }
    load(first + B::kKeys);
    workgroup_barrier();  // transposes are there, and all waves are done with rows
    if (seen) block.add(block.lds, packed, sums);
    store_rows();
  }
}

// Writes a wave's rows of dq.
template <class B>
FA_DEVICE void store(const B& block, int wave_row, typename B::Sums& sums) {
#pragma unroll
  for (int step = 0; step < B::kSumSteps; ++step) B::Unit::settle(sums[step]);
  const BwdParams& params = loaded_here(block.arguments);
  const Sequence& sequence = block.sequence;
  const Visibility& visible = block.visible;
  const int64_t at =
      offset_of(params.dq, is_ragged<B>(params.cu_seqlens_q), block.batch, block.head, sequence.q_first);
  store_gradient<typename B::Unit, B::kDType, B::kHeadDim>(
      sums, params.dq, at, wave_row, sequence.seqlen_q,
      RaisedOf<B>::times(RaisedOf<B>::kOfDq, B::kMasked ? params.scale * params.dropout_scale : params.scale),
      block.lane, [&](int row) { return visible.begin(row) < visible.end(row); });
}

}  // namespace fa
