// Inputs of the waves of CDNA's loop (dkdv/ping_pong.hpp): their own rows of K and V, tiles of rows, and
// numbers per query. All waves of a compute unit start together and share its scalar units, so addresses take
// as few instructions as their ranges allow.
#pragma once

#include "device/backward/dkdv/block.hpp"

namespace fa {

// Address of a row of a head. All three numbers are counted from 0, and a row stride has 24 bits.
FA_DEVICE const char* row_of(const BwdInput& tensor, uint32_t batch, uint32_t head, uint32_t row) {
  const uint64_t at = batch * static_cast<uint64_t>(tensor.batch) +
                      head * static_cast<uint64_t>(tensor.head) +
                      static_cast<uint64_t>(row) * static_cast<uint32_t>(tensor.row);
  return static_cast<const char*>(tensor.data) + at * 2;
}
FA_DEVICE int64_t row_bytes_of(const BwdInput& tensor) { return static_cast<uint32_t>(tensor.row) * 2; }

// Rows from `first` on.
FA_DEVICE HeadRows rows_from(const HeadRows& rows, int first) {
  const uint64_t bytes =
      static_cast<uint64_t>(static_cast<uint32_t>(first)) * static_cast<uint32_t>(rows.row_bytes);
  return {rows.base + bytes, rows.row_bytes, rows.rows - first};
}

// A workgroup's rows of K or V from key `first` on.
template <class B>
FA_DEVICE HeadRows keys_from(const B& block, const BwdParams& params, const BwdInput& tensor, int first) {
  const uint32_t batch = is_ragged<B>(params.cu_seqlens_k) ? 0 : block.batch;
  return {row_of(tensor, batch, block.head_k, block.sequence.k_first + first), row_bytes_of(tensor),
          block.sequence.seqlen_k - first};
}

template <class B>
FA_DEVICE typename B::Own own_keys(const B& block, const BwdParams& params, int wave_key) {
  const bool of_weights = block.is(Role::weights);
  const typename B::OwnView view(keys_from(block, params, of_weights ? params.k : params.v, wave_key), 0);
  // As a number of scalar registers.
  const int scale = of_weights ? __builtin_bit_cast(int, params.scale) : __builtin_bit_cast(int, 1.0f);
  const float signed_by = __builtin_bit_cast(float, scale);
  Unchanged convert;
  if constexpr (B::kConfig.row_major && !B::kMasked) {
    return typename B::Own(block.own_area(), view, ShortSign{signed_by}, convert, block.lane);
  }
  return typename B::Own(block.own_area(), view, QuerySign::from_bits(signed_by), convert, block.lane);
}

// Moves a wave's part of a head's tiles from memory into LDS.
template <class B>
struct Moves {
  using Unit = typename B::Unit;
  using Stage = typename B::Stage;
  using NumberView = BufferView<B::kQueries, sizeof(float), B::kTraits.buffer_word3>;

  const bool moves;  // or it waits for others that do
  HeadRows rows, numbers;
  typename B::Source source;  // in the featured loop
  Stage stage;
  float number = 0;
  Flag seen = {0}, masked = {0};  // of the last loaded tile
  const int dropping;             // LateDropout's sign
  // The first product of a tile starts from slope * number + start. Lanes with the same row add up: half of
  // `start` comes from lanes without a number.
  int place;
  float slope, start;

  FA_DEVICE Moves(const B& block, const BwdParams& params, int head_q)
      : moves(B::kMovers == B::kTile.threads || !block.is(Role::weights)), dropping(block.dropout.sign) {
    if constexpr (B::Numbers::kByWave) {
      const bool of_weights = block.is(Role::weights);
      const float inverse = __builtin_amdgcn_rcpf(block.factor);
      // Scalar registers are short.
      constexpr bool kInVectors = kKeepsRareValues && B::kMasked && RaisedOf<B>::kIs;
      const auto kept = [](float x) { return kInVectors ? here(x) : uniform(x); };
      slope = kept(of_weights ? -Scoring::kLog2e * inverse
                              : RaisedOf<B>::raise(B::kMasked ? late_minus(params) : -1.0f));
      start = kept(of_weights ? RaisedOf<B>::kLogP * 0.5f * inverse : 0.0f);
      const int row = Unit::slot_of_row(Unit::a_row(block.lane), B::kQueries);
      constexpr int kNowhere = 1 << 20;  // reads as zero
      place = block.lane < Unit::kM ? row * static_cast<int>(sizeof(float)) : kNowhere;
    }
    of_head(block, params, head_q);
  }

  FA_DEVICE void of_head(const B& block, const BwdParams& params, int head_q) {
    if constexpr (!B::Numbers::kByWave) source = block.source(params, head_q);
    const Sequence& sequence = block.sequence;
    const uint32_t batch = is_ragged<B>(params.cu_seqlens_q) ? 0 : block.batch;
    // Waves without loads skip the address.
    if (moves || !B::kConfig.row_major) {
      const BwdInput tensor = Stage::tensor_of_wave(B::moving(block.thread)) == 0 ? params.q : params.dout;
      rows = {row_of(tensor, batch, head_q, sequence.q_first), row_bytes_of(tensor), sequence.seqlen_q};
    }
    const float* const all = block.is(Role::weights) ? params.lse : params.delta;
    const uint64_t at = batch * static_cast<uint64_t>(params.lse_batch) +
                        static_cast<uint32_t>(head_q) * static_cast<uint64_t>(params.lse_head) +
                        static_cast<uint32_t>(sequence.q_first);
    numbers = {reinterpret_cast<const char*>(all + at), sizeof(float), sequence.seqlen_q};
  }

  // Places of a lane's piece and gradients of scores, if registers are short: see `kept` of DqPart.
  FA_DEVICE u32x4 places(const B& block) const {
    u32x4 places = {};
    if constexpr (B::kConfig.tight_registers) {
      places = Stage::places(static_cast<uint32_t>(rows.row_bytes), B::moving(block.thread));
      places[3] = static_cast<uint32_t>(B::Scores::place(block.pair, block.lane));
    }
    return places;
  }

  // Rows and number of the tile from `first` on.
  FA_DEVICE void load(const B& block, const typename B::Tiles& tiles, u32x4 places, int first) {
    // Opaque: derived values are then computed where no wave waits for them.
    const int from = here_uniform(first);
    load_rows(block, places, from);
    load_number(block, from);
    see(tiles, from);
  }
  FA_DEVICE void load_rows(const B& block, u32x4 places, int from) {
    if (moves) {
      const typename B::View view(rows_from(rows, from), 0);
      if constexpr (B::kConfig.tight_registers) {
        stage.load_from(places, view);
      } else {
        stage.load([&](int) { return view; }, block.mover());
      }
    }
  }
  FA_DEVICE void load_number(const B& block, int from) {
    if constexpr (B::Numbers::kByWave) {
      number = NumberView(rows_from(numbers, from), 0).template read_at<float>(place);
    } else {
      number = B::Numbers::load(block, source, from, 0);
    }
  }

  FA_DEVICE void see(const typename B::Tiles& tiles, int from) {
    seen.sign = uniform(tiles.seen_flag(from).sign);
    masked.sign = uniform(tiles.masked_flag(from).sign) | dropping;
  }

  // Start value of the tile's first product.
  FA_DEVICE float first_term(const B& block) const {
    if constexpr (!B::Numbers::kByWave) return 0;
    const bool of_lse = B::kMasked && block.is(Role::weights);
    return __builtin_fmaf(of_lse ? Scoring::masked_lse(number) : number, slope, start);
  }

  // As the tiles with this number, if there are two.
  FA_DEVICE void store_rows(const B& block, u32x4 places, int set) {
    if (RaisedOf<B>::kIs && moves) raise_dout(block, stage);
    if constexpr (B::kConfig.tight_registers) {
      if (moves) stage.store_rows_to(places, block.tiles(set));
    } else {
      if (moves) stage.store_rows(block.tiles(set), block.mover());
    }
  }
  FA_DEVICE void store_number(const B& block, int set) const {
    if constexpr (!B::Numbers::kByWave) B::Numbers::store(block, number, set);
  }
  FA_DEVICE void store_transposed(const B& block, u32x4 places) {
    if constexpr (B::kConfig.row_major) {
      // There is one form.
    } else if constexpr (B::kConfig.tight_registers) {
      if (moves) stage.store_transposed_to(places, block.lds);
    } else {
      if (moves) stage.store_transposed(block.lds, block.mover());
    }
  }
};

}  // namespace fa
