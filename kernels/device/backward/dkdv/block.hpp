// The work of one workgroup of a kernel of dk and dv: its place in the grid, its inputs and its LDS.
// backward/dkdv/loop.hpp has the algorithm.
#pragma once

#include "device/backward/dkdv/numbers.hpp"
#include "device/backward/dkdv/shape.hpp"
#include "device/backward/parts/shown_tiles.hpp"

namespace fa {

enum class Role { weights, gradients };

// `Kernel`: see dkdv/shape.hpp.
template <class Kernel>
struct DkDvBlock : Kernel {
  using Kernel::kColumnBlocks, Kernel::kConfig, Kernel::kCopies, Kernel::kFeatured, Kernel::kMasked;
  using Kernel::kMovers, Kernel::kPairs, Kernel::kQueries, Kernel::kTile, Kernel::kTraits;
  using typename Kernel::Exchange, typename Kernel::Numbers, typename Kernel::Operand, typename Kernel::Own;
  using typename Kernel::Floats, typename Kernel::OwnView, typename Kernel::P, typename Kernel::Result;
  using typename Kernel::Scores, typename Kernel::Source, typename Kernel::Stage, typename Kernel::Tiles;
  using typename Kernel::Unit;

  static constexpr int kWaveKeys = kColumnBlocks * Unit::kN;
  // LDS: tiles, numbers per query, each wave's own data, and the data passed between waves.
  static constexpr int kNumbersAt = Stage::kBytes;
  static constexpr int kOwnAt = kNumbersAt + Numbers::kBytes;
  static constexpr int kOwnBytes = Own::kLdsBytes + Operand::kLdsBytes;  // per wave
  // If both waves of a pair need P, one reads it from the other's operand.
  static constexpr bool kGivesOperand = !kFeatured && Kernel::kFragments;
  // Otherwise a pair's waves exchange P through this. If operands also pass through LDS, it shares the place
  // of an operand of the wave that reads it and overwrites it afterwards.
  static constexpr bool kExchangeInOperand = Operand::kLdsBytes >= Exchange::kBytes;
  static constexpr int kExchangeAt = kOwnAt + 2 * kPairs * kOwnBytes;
  static constexpr int kExchangeBytes = kExchangeInOperand ? 0 : kPairs * kColumnBlocks * Exchange::kBytes;
  static constexpr int kScoresAt = kExchangeAt + kCopies * kExchangeBytes;
  static constexpr int kLdsBytes = kScoresAt + (Kernel::kWithDq ? kCopies * Scores::kBytes : 0);
  static_assert(kLdsBytes <= kTraits.lds_bytes, "the tiles do not fit into LDS");

  const BwdArguments arguments;
  const Sequence sequence;
  const int batch, head_k, thread, lane, wave;
  const Role role;
  const int pair;
  const Visibility visible;
  const LdsBytes lds;
  const float factor;  // scale * log2(e)
  const LateDropout<kMasked, RaisedOf<Kernel>> dropout;
  int set = 0;  // of the numbers in use, if early, and of the tiles, if there are two

  // The workgroup's place. The first blocks start first: most queries see their keys if the window's right
  // side is limited.
  FA_DEVICE static WorkgroupPlace place_of(const BwdParams& params) { return place_in(params.order); }

  FA_DEVICE DkDvBlock(BwdArguments arguments, const BwdParams& params, const WorkgroupPlace& place,
                      const Sequence& sequence, LdsBytes lds)
      : arguments(arguments),
        sequence(sequence),
        batch(place.batch),
        head_k(place.head),
        thread(__builtin_amdgcn_workitem_id_x()),
        lane(thread % Unit::kWave),
        wave(uniform(thread / Unit::kWave)),
        role(wave < kPairs ? Role::weights : Role::gradients),
        pair(kMasked && kCopies > 1 ? here_uniform(wave % kPairs) : wave % kPairs),  // one for both roles
        visible{sequence.seqlen_q, sequence.seqlen_k, params.window_left, params.window_right},
        lds(lds),
        factor(uniform(Scoring::factor_of(params))),
        dropout(params) {}

  // The lane that reads tiles, the lane that passes on results, and the thread that moves tiles. If registers
  // are short, their addresses are computed anew for each tile.
  FA_DEVICE int reader() const { return kFeatured ? here(lane) : lane; }
  FA_DEVICE int passer() const { return kConfig.tight_registers ? here(lane) & (Unit::kWave - 1) : lane; }
  // For rare use: with a mask all registers are in use.
  FA_DEVICE int lane_again() const { return kMasked ? own_lane<Unit::kWave>() : here(lane); }
  FA_DEVICE int mover() const {
    if constexpr (kConfig.tight_registers) return moving(wave * Unit::kWave + passer());
    return kFeatured ? moving(here(thread)) : moving(thread);
  }
  // If some threads have nothing to move, they are outside the waves waiting for the matrix unit.
  FA_DEVICE static int moving(int thread) {
    if constexpr (!kTraits.matrix_coexecution) return thread;
    // Masked, so the compiler sees a non-negative number.
    static_assert(kPairs % 2 == 0, "a power of 2");
    return (thread ^ kTile.threads / 2) & (kMovers - 1);
  }

  FA_DEVICE Tiles tiles_of(int first_key, int wave_key) const {
    return {visible.tiles_of_keys(first_key, kTile.block_n, wave_key, kWaveKeys, kQueries)};
  }

  // The tiles with this number, if there are two.
  FA_DEVICE LdsBytes tiles(int set) const {
    if constexpr (kConfig.row_major) return lds + set * Stage::kTilesBytes;
    return lds;
  }

  FA_DEVICE LdsBytes own_area() const { return lds + kOwnAt + wave * kOwnBytes; }
  FA_DEVICE LdsBytes operand_area() const { return own_area() + Own::kLdsBytes; }
  FA_DEVICE LdsBytes exchange(int columns) const {
    if (kExchangeInOperand) return lds + kOwnAt + (kPairs + pair) * kOwnBytes + Own::kLdsBytes;
    return lds + kExchangeAt + (pair * kColumnBlocks + columns) * Exchange::kBytes;
  }
  FA_DEVICE LdsBytes scores() const { return lds + kScoresAt; }
  FA_DEVICE bool is(Role other) const { return role == other; }

  // Passes P of a block of columns to the other wave of a pair.
  FA_DEVICE void give(const P& packed, int columns = 0) const {
    if constexpr (kGivesOperand) {
      Operand::write(operand_area(), lane, packed);
    } else {
      Exchange::write(exchange(columns), passer(), packed);
    }
  }
  FA_DEVICE P given(int columns = 0) const {
    if constexpr (kGivesOperand) {
      if (!dropout.drops()) return Operand::read(operand_area() - kPairs * kOwnBytes, lane);
    }
    return Exchange::read(exchange(columns), passer());
  }
  // P, already passed on, or dS.
  FA_DEVICE Operand operand(const P& packed) const {
    if constexpr (kGivesOperand) {
      if (!is(Role::weights)) Operand::write(operand_area(), lane, packed);
      wave_barrier();
      return Operand(operand_area(), lane);
    } else {
      return Operand(operand_area(), lane, packed);
    }
  }

  FA_DEVICE Own load_own(int wave_key) const { return load_own(loaded_here(arguments), wave_key); }
  FA_DEVICE Own load_own(const BwdParams& params, int wave_key) const {
    const BwdInput tensor = is(Role::weights) ? params.k : params.v;
    const bool ragged = is_ragged<DkDvBlock>(params.cu_seqlens_k);
    const OwnView view(rows_of(tensor, ragged, batch, head_k, sequence.k_first, sequence.seqlen_k), wave_key);
    const QuerySign sign(is(Role::weights) ? params.scale : 1.0f);
    Unchanged convert;
    return Own(own_area(), view, sign, convert, lane);
  }

  FA_DEVICE Source source(int head_q) const { return source(loaded_here(arguments), head_q); }
  FA_DEVICE Source source(const BwdParams& params, int head_q) const {
    const bool ragged = is_ragged<DkDvBlock>(params.cu_seqlens_q);
    const int64_t lse_at =
        (ragged ? 0 : batch) * params.lse_batch + head_q * params.lse_head + sequence.q_first;
    return {rows_of(params.q, ragged, batch, head_q, sequence.q_first, sequence.seqlen_q),
            rows_of(params.dout, ragged, batch, head_q, sequence.q_first, sequence.seqlen_q),
            params.lse + lse_at, params.delta + lse_at};
  }

  // The numbers of the tile's rows needed by the wave, and the number of the lane's row `f`.
  FA_DEVICE Floats numbers() const {
    const int at = kNumbersAt + (Numbers::kSets > 1 ? set * Numbers::kSetBytes : 0);
    return (Floats)(lds + at) + (is(Role::weights) ? 0 : Numbers::kNumbers);
  }
  FA_DEVICE float number(int f) const {
    return numbers()[Unit::held_begin(lane, kQueries) + Unit::held_step(f)];
  }

  template <class Action>
  FA_DEVICE static void each(Result& result, const Action& action) {
    each_element<Unit, P::kHeld>(result, action);
  }
  template <class Action>
  FA_DEVICE static void in_order(Result& result, const Action& action) {
    each_element<Unit, P::kHeld, true>(result, action);
  }
};

}  // namespace fa
