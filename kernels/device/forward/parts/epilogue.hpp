// The end of a block: O divided by the sums of P becomes rows of out, and the log-sum-exp is written.
#pragma once

#include "device/arch/compiler.hpp"
#include "device/arch/current.hpp"
#include "device/forward/parts/block.hpp"
#include "device/forward/parts/source.hpp"
#include "device/memory/store.hpp"
#include "device/scores/sink.hpp"

namespace fa {

// Upstream reports +inf also for NaN scores.
FA_DEVICE float reported_lse(float lse) { return lse == lse ? lse : __builtin_inff(); }

// Adds a sink to the sums of a column, and returns it.
template <class Softmax>
FA_DEVICE float add_sink(const float* sinks, int head, Softmax& softmax, int c) {
  if (__builtin_expect(sinks == nullptr, 1)) return kNoSink;
  const float sink = sink_of(sinks, head);
  softmax.sum[c] = sum_with_sink(softmax.sum[c], softmax.level(c), sink);
  return sink;
}

template <class Softmax>
FA_DEVICE float whole_lse(const Softmax& softmax, int c, float sink) {
  return lse_with_sink(reported_lse(softmax.log_sum_exp(c)), sink);
}

FA_DEVICE uint64_t lse_place(const FwdParams& params, uint32_t batch, uint32_t head, uint32_t row) {
  return batch * static_cast<uint64_t>(params.lse_batch) + head * static_cast<uint64_t>(params.lse_head) +
         row;
}

// The lane, computed anew if a mask occupies registers through the loop.
template <class B>
FA_DEVICE int late_lane(const B& block) {
  return B::kMasked && B::kConfig.short_prologue ? own_lane<B::Unit::kWave>() : block.lane;
}

// Scale of the probabilities kept by dropout, with a mask: loaded here, to keep the loop's registers free.
// Otherwise 1.
template <class B>
FA_DEVICE float late_factor() {
  if constexpr (B::kDropsLate) return reloaded(kernel_arguments()).dropout_scale;
  return 1;
}

// The arguments of a short epilogue. With a mask, they are loaded here with one wait: the loop needs the
// scalar registers.
template <class B>
FA_DEVICE FwdParams late_params(const B& block) {
  if constexpr (!B::kMasked) return block.params;
  FwdParams params = reloaded(kernel_arguments());
  loaded_together(params.out, params.lse, params.sink, params.dropout_scale);
  loaded_together(params.o_batch, params.o_row, params.o_head, params.lse_batch, params.lse_head);
  return params;
}

// Rows of queries with a short prologue, by 32-bit offsets from the wave's first.
template <class B>
FA_DEVICE void store_in_short(const B& block, const FwdParams& params, int wave_row, typename B::Stored& o,
                              typename B::Softmax& softmax) {
  using Unit = typename B::Unit;
  const float sink = B::kCounts ? kNoSink : add_sink(params.sink, block.head, softmax, 0);
  static_assert(!B::kFeatured && Unit::kColumns == 1);
  const int lane = late_lane(block);
  const uint32_t batch = block.batch, head = block.head;
  const uint32_t first = block.sequence.q_first + wave_row;
  const int left = block.sequence.seqlen_q - wave_row, rows = B::kInTurn ? uniform(left) : left;
  const int column = Unit::column(lane, 0);
  const HeadRows out_rows{row_at(params.out, params.o_batch, params.o_head, params.o_row, batch, head, first),
                          static_cast<int64_t>(static_cast<uint32_t>(params.o_row) * 2), rows};
  const uint64_t lse_at = lse_place(params, batch, head, first);
  const typename B::OutView out(out_rows, 0);
  const typename B::LseView lse({reinterpret_cast<const char*>(params.lse + lse_at), sizeof(float), rows}, 0);
  const int held = held_byte<typename B::StoredRows, B::kValueDim>(lane, 0);
  if (any_lane<Unit::kWave>(!softmax.sees_a_key(0))) {  // few calls have such rows
#pragma unroll
    for (int f = 0; f < B::kStoredSteps * Unit::kRows; ++f) {
      float& element = reinterpret_cast<float*>(&o[f / Unit::kRows])[f % Unit::kRows];
      element = softmax.sees_a_key(0) ? element : 0;
    }
  }
  const float factor = softmax.inverse_sum(0) * (B::kDropsLate || B::kFp8Values ? params.dropout_scale : 1);
  store_column<typename B::StoredRows, B::kDType, B::kStoredSteps>(
      o, 0, factor, true, [&](int byte, auto words) { out.write(column, held + byte, words); });
  // Lanes without their own row write beyond the last row: such stores are dropped.
  if (Unit::held_begin(lane, B::kKeys) == 0) lse.write(column, 0, whole_lse(softmax, 0, sink));
}

// Rows of queries, by 32-bit offsets from the wave's first.
template <class B>
FA_DEVICE void store_by_buffer(const B& block, int wave_row, const typename B::Stored& o,
                               typename B::Softmax& softmax, const float* sinks) {
  using Unit = typename B::Unit;
  const FwdParams& params = block.params;
  const Sequence& sequence = block.sequence;
  const uint32_t batch = batch_of_queries(block, params), head = block.head, first = sequence.q_first;
  const char* const out_base =
      row_at(params.out, params.o_batch, params.o_head, params.o_row, batch, head, first);
  const char* const lse_base =
      reinterpret_cast<const char*>(params.lse + lse_place(params, batch, head, first));
  const int64_t row_bytes = static_cast<int64_t>(static_cast<uint32_t>(params.o_row) * 2);
  const typename B::OutView out({out_base, row_bytes, sequence.seqlen_q}, wave_row);
  const typename B::LseView lse({lse_base, sizeof(float), sequence.seqlen_q}, wave_row);
  const bool scaled = B::kFp8Values || (B::kDrops && params.dropout_below != 0);
  const float kept = scaled ? params.dropout_scale : late_factor<B>();
#pragma unroll
  for (int c = 0; c < Unit::kColumns; ++c) {
    const int column = Unit::column(block.lane, c);
    if (wave_row + column >= sequence.seqlen_q) continue;
    const int held = held_byte<Unit, B::kValueDim>(block.lane, 0);
    const float sink = add_sink(sinks, head, softmax, c);
    store_column<Unit, B::kDType, B::kStoredSteps>(
        o, c, softmax.inverse_sum(c) * (B::kOutUnit * kept), softmax.sees_a_key(c),
        [&](int byte, auto words) { out.write(column, held + byte, words); });
    if (Unit::held_begin(block.lane, B::kKeys) == 0) {
      lse.write(column, 0, whole_lse(softmax, c, sink));
    }
  }
}

// A row of one part of the keys, in fp32. fa_combine_* combines the parts.
template <class B>
FA_DEVICE void store_partial(const B& block, const FwdParams& params, int64_t lse_at, bool stores_lse,
                             const typename B::Stored& o, const typename B::Softmax& softmax, int c) {
  const int64_t partial = block.part(params) * params.partial_split + lse_at;
  if (stores_lse) {
    params.partial_lse[partial] = softmax.sees_a_key(c) ? softmax.log_sum_exp(c) : -__builtin_inff();
  }
  if (!softmax.sees_a_key(c)) return;
  float* out = params.partial_out + partial * B::kValueDim;
  store_column_fp32<typename B::StoredRows, B::kValueDim, B::kStoredSteps>(
      o, c, softmax.inverse_sum(c) * B::kOutUnit, out, block.lane, block.first_out_step());
}

template <class B>
FA_DEVICE void store_row(const B& block, int row, const typename B::Stored& o, typename B::Softmax& softmax,
                         int c, const float* sinks) {
  using Unit = typename B::Unit;
  // Loaded here, to keep the loop's scalar registers free.
  constexpr bool kReloads = B::kPacked || B::kMasked || kManyConditions<Unit>;
  const FwdParams& params = kReloads ? reloaded(kernel_arguments()) : block.params;
  if constexpr (B::kEarlyQuery) load_places_of_row(params);
  const int64_t at = block.sequence.q_first + block.query_of(row);
  const int head_q = block.head_of(row);
  const int64_t in_batch = B::kMasked || params.cu_seqlens_q == nullptr ? block.batch : 0;  // masked: dense
  const int64_t lse_at = in_batch * params.lse_batch + head_q * params.lse_head + at;
  const bool stores_lse = Unit::held_begin(block.lane, B::kKeys) == 0 && (!B::kPacked || block.wave == 0) &&
                          (!B::kWide || block.slice() == 0);
  if ((B::kPacked || B::kWide) && params.splits > 1) {
    const FwdParams& again = B::kWide ? reloaded(kernel_arguments()) : params;  // few calls need more of them
    store_partial(block, again, lse_at, stores_lse, o, softmax, c);
    return;
  }
  char* out = static_cast<char*>(params.out) +
              (in_batch * params.o_batch + head_q * params.o_head + at * params.o_row) * 2;
  const float kept = B::kDrops && params.dropout_below != 0 ? params.dropout_scale : late_factor<B>();
  const float sink = B::kHasSinks ? add_sink(sinks, head_q, softmax, c) : kNoSink;
  const float factor = softmax.inverse_sum(c) * (B::kOutUnit * kept);
  char* held = out + held_byte<typename B::StoredRows, B::kValueDim>(block.lane, block.first_out_step());
  store_column<typename B::StoredRows, B::kDType, B::kStoredSteps>(
      o, c, factor, softmax.sees_a_key(c),
      [=](int byte, auto words) { *reinterpret_cast<decltype(words)*>(held + byte) = words; });
  if constexpr (B::kPacked) missed_operand_wait<kCurrentGfx>();
  if (stores_lse) params.lse[lse_at] = whole_lse(softmax, c, sink);
}

template <class B>
FA_DEVICE void store_rows(const B& block, int wave_row, typename B::Stored& o, typename B::Softmax& softmax) {
  using Unit = typename B::Unit;
  const auto finish = [&] {
    if constexpr (!B::kOwnKeys) softmax.join_sums(late_lane(block));  // else join_waves has
#pragma unroll
    for (int step = 0; step < B::kStoredSteps; ++step) Unit::settle(o[step]);
  };
  if constexpr (B::kConfig.short_prologue) {
    const FwdParams params = late_params(block);
    finish();
    store_in_short(block, params, wave_row, o, softmax);
    return;
  }
  // Loaded here, to keep the loop's scalar registers free.
  const float* const sinks = B::kCounts ? nullptr : reloaded(kernel_arguments()).sink;
  finish();
  if constexpr (B::kConfig.buffer_stores) {
    store_by_buffer(block, wave_row, o, softmax, sinks);
  } else {
#pragma unroll
    for (int c = 0; c < Unit::kColumns; ++c) {
      const int row = wave_row + Unit::column(block.lane, c);
      if (row < block.rows()) store_row(block, row, o, softmax, c, sinks);
    }
  }
}

}  // namespace fa
