// Shared by the backward kernels: start of tensors, products of tiles, and writing of gradients.
#pragma once

#include "device/arch/device.hpp"
#include "device/call/backward_arguments.hpp"
#include "device/call/backward_config.hpp"
#include "device/masks/mask.hpp"
#include "device/masks/tile_range.hpp"
#include "device/memory/packed.hpp"
#include "device/memory/query.hpp"
#include "device/memory/store.hpp"
#include "device/memory/transposed_stage.hpp"
#include "device/memory/turned.hpp"
#include "device/memory/view.hpp"
#include "device/mma/dot2.hpp"
#include "device/mma/mfma.hpp"
#include "device/mma/wmma.hpp"
#include "device/mma/wmma_split.hpp"
#include "device/scores/narrow.hpp"

namespace fa {

// Offset of row `first` of a sequence and head, in elements.
template <class Tensor>
FA_DEVICE int64_t offset_of(const Tensor& tensor, bool ragged, int batch, int head, int first) {
  return (ragged ? 0 : batch) * tensor.batch + head * tensor.head + first * tensor.row;
}

// The `rows` rows of a sequence and head.
template <class Tensor>
FA_DEVICE HeadRows rows_of(const Tensor& tensor, bool ragged, int batch, int head, int first, int rows) {
  return {static_cast<const char*>(tensor.data) + offset_of(tensor, ragged, batch, head, first) * 2,
          tensor.row * 2, rows};
}

// A barrier of the workgroup's waves that leaves global loads in flight.
template <Gfx kGfx>
FA_DEVICE void tile_barrier() {
  if constexpr (traits(kGfx).back_off_barrier) {
    workgroup_barrier();
  } else {
    workgroup_barrier_in_flight();
  }
}

// Element f of column c of a lane's part of a result.
template <class Unit>
FA_DEVICE float& element(typename Unit::C* c, int column, int f) {
  return reinterpret_cast<float*>(&c[f / Unit::kRows])[f % Unit::kRows * Unit::kColumns + column];
}

// value = action(value, column, f) for each element of a lane's part of a result. kInOrder: one after the
// other, if registers are short.
template <class Unit, int kHeld, bool kInOrder = false, class Action>
FA_DEVICE void each_element(typename Unit::C* result, const Action& action) {
#pragma unroll
  for (int c = 0; c < Unit::kColumns; ++c) {
#pragma unroll
    for (int f = 0; f < kHeld; ++f) {
      float& value = element<Unit>(result, c, f);
      value = kInOrder ? here(action(here(value), c, f)) : action(value, c, f);
    }
  }
}

// Keeps the compiler from loading the operands of more than kAtOnce matrix steps at once. 0: no limit.
template <int kAtOnce>
FA_DEVICE void end_of_matrix_step(int step) {
  if constexpr (kAtOnce != 0) {
    if (step % kAtOnce == kAtOnce - 1) __builtin_amdgcn_sched_barrier(0);
  }
}

struct Nothing {
  FA_DEVICE void operator()(int) const {}
};

// Calls `multiply(j, a)` for j from 0 to kCount, with a = `read(j)`, read kAhead products earlier.
// `interleave(j)` runs during product j.
template <int kCount, int kAhead, class Read, class Multiply, class Interleave>
FA_DEVICE void read_ahead(const Read& read, const Multiply& multiply, const Interleave& interleave) {
  if constexpr (kAhead == 0) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      multiply(j, read(j));
      interleave(j);
    }
  } else {
    decltype(read(0)) ahead[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead && j < kCount; ++j) ahead[j] = read(j);
    __builtin_amdgcn_sched_barrier(0);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      multiply(j, ahead[j % kAhead]);
      if (j + kAhead < kCount) ahead[j % kAhead] = read(j + kAhead);
      interleave(j);
      __builtin_amdgcn_sched_barrier(0);
    }
  }
}

// Calls `multiply(j, half, a)` for both halves of steps 0 to kCount, with a = `read(j)`, read kAhead steps
// earlier. `interleave(i)` runs during half i of all of them.
template <int kCount, int kAhead, class Read, class Multiply, class Interleave>
FA_DEVICE void read_ahead_of_halves(const Read& read, const Multiply& multiply,
                                    const Interleave& interleave) {
  decltype(read(0)) ahead[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) ahead[j] = read(j);
  __builtin_amdgcn_sched_barrier(0);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    multiply(j, 0, ahead[j % kAhead]);
    interleave(2 * j);
    __builtin_amdgcn_sched_barrier(0);
    multiply(j, 1, ahead[j % kAhead]);
    if (j + kAhead < kCount) ahead[j % kAhead] = read(j + kAhead);
    interleave(2 * j + 1);
    __builtin_amdgcn_sched_barrier(0);
  }
}

// A lane's operands of rows, units at constant distances: one address serves all.
template <class Unit, class Tile>
struct RowReader {
  using A = typename Unit::A;
  typename Tile::template Row<A> row;

  FA_DEVICE RowReader(LdsBytes tile, int lane) : row(tile, Unit::a_row(lane), Unit::run_begin(lane) / 8) {}
  FA_DEVICE A read(int i, int step) const {
    auto of_step = row;
    of_step.tile = Tile::period(row.tile, step);
    return of_step.read(i * (Unit::kK / 8));
  }
};

// Of a tile that is read by rows, or turned.
template <class Unit, class Tile>
using OperandReader = Choice<kIsTurned<Tile>, Tile, RowReader<Unit, Tile>>;

// Operand A of step `i` of the contraction, from period `step` of a tile.
template <class Unit, class Tile, int kAhead>
FA_DEVICE auto reader_of(LdsBytes tile, int lane) {
  if constexpr (kIsTurned<Tile> || (kAhead > 0 && Unit::kColumns == 1 && Unit::kRun == 8)) {
    const OperandReader<Unit, Tile> operands(tile, lane);
    return [=](int i, int step) { return operands.read(i, step); };
  } else {
    return [=](int i, int step) {
      return Tile::template read<typename Unit::A>(Tile::period(tile, step), Unit::a_row(lane),
                                                   (i * Unit::kK + Unit::run_begin(lane)) / 8);
    };
  }
}

// result[step] += rows of the tile (operand A) times own columns, over head_dim.
template <class Unit, class Tile, int kSteps, int kAtOnce, int kAhead = 0, class Own>
FA_DEVICE void multiply_rows(typename Unit::C* result, LdsBytes tile, const Own& own, int lane) {
  const auto read = reader_of<Unit, Tile, kAhead>(tile, lane);
  if constexpr (kAhead > 0 && Unit::kColumns > 1) {
    // Operand B is long: all operands multiplied by it are read with it.
    struct Group {
      typename Unit::B b;
      typename Unit::A a[kSteps];
    };
    read_ahead<Own::kSteps, 1>(
        [&](int i) {
          Group group;
          group.b = own.operand(i);
#pragma unroll
          for (int step = 0; step < kSteps; ++step) group.a[step] = read(i, step);
          return group;
        },
        [&](int i, const Group& group) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            if (i == 0) {
              Unit::multiply_first(result[step], group.a[step], group.b);
            } else {
              Unit::multiply(result[step], group.a[step], group.b);
            }
          }
        },
        Nothing());
  } else if constexpr (kAhead > 0 && Own::kLdsBytes > 0) {
    struct Both {
      typename Unit::A a;
      typename Unit::B b;
    };
    read_ahead<Own::kSteps * kSteps, kAhead>(
        [&](int j) { return Both{read(j / kSteps, j % kSteps), own.operand(j / kSteps)}; },
        [&](int j, const Both& both) { Unit::multiply(result[j % kSteps], both.a, both.b); }, Nothing());
  } else if constexpr (kAhead > 0) {
    read_ahead<Own::kSteps * kSteps, kAhead>([&](int j) { return read(j / kSteps, j % kSteps); },
                                             [&](int j, const typename Unit::A& a) {
                                               Unit::multiply(result[j % kSteps], a, own.operand(j / kSteps));
                                             },
                                             Nothing());
  } else {
    // With 64 lanes, all steps would exceed the instruction cache (v_dot2 has 8 bytes) and the registers.
    constexpr int kUnroll = kManyConditions<Unit> ? 2 : Own::kUnroll;
#pragma unroll kUnroll
    for (int i = 0; i < Own::kSteps; ++i) {
      const typename Unit::B b = own.operand(i);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const auto a = read(i, step);
        if (i == 0) {
          Unit::multiply_first(result[step], a, b);
        } else {
          Unit::multiply(result[step], a, b);
        }
        end_of_matrix_step<kAtOnce>(i * kSteps + step);
      }
    }
  }
  // Here instead of at their use: the compiler would move the product behind branches, and keep its operands.
#pragma unroll
  for (int step = 0; step < kSteps; ++step) Unit::pin(result[step]);
}

// sums[step] += transposed rows of the tile (operand A) times `operand`, over the tile's rows.
template <class Unit, class Tile, int kSteps, int kAtOnce, int kAhead = 0, class Operand>
FA_DEVICE void multiply_transposed(typename Unit::C* sums, LdsBytes tile, const Operand& operand, int lane) {
  const auto read = reader_of<Unit, Tile, kAhead>(tile, lane);
  if constexpr (kAhead > 0 && Unit::kColumns > 1) {
    typename Unit::B b[2] = {operand.operand(0)};
    read_ahead<Operand::kSteps * kSteps, kAhead>(
        [&](int j) { return read(j / kSteps, j % kSteps); },
        [&](int j, const typename Unit::A& a) {
          if (j % kSteps == kSteps / 2 && j / kSteps + 1 < Operand::kSteps) {
            b[(j / kSteps + 1) % 2] = operand.operand(j / kSteps + 1);
          }
          Unit::multiply(sums[j % kSteps], a, b[j / kSteps % 2]);
        },
        Nothing());
  } else if constexpr (kAhead > 0 && Operand::kLdsBytes > 0) {
    typename Unit::B b[Operand::kSteps];
#pragma unroll
    for (int i = 0; i < Operand::kSteps; ++i) b[i] = operand.operand(i);
    read_ahead<Operand::kSteps * kSteps, kAhead>(
        [&](int j) { return read(j / kSteps, j % kSteps); },
        [&](int j, const typename Unit::A& a) { Unit::multiply(sums[j % kSteps], a, b[j / kSteps]); },
        Nothing());
  } else if constexpr (kAhead > 0) {
    read_ahead<Operand::kSteps * kSteps, kAhead>([&](int j) { return read(j / kSteps, j % kSteps); },
                                                 [&](int j, const typename Unit::A& a) {
                                                   Unit::multiply(sums[j % kSteps], a,
                                                                  operand.operand(j / kSteps));
                                                 },
                                                 Nothing());
  } else {
#pragma unroll
    for (int i = 0; i < Operand::kSteps; ++i) {
      const typename Unit::B b = operand.operand(i);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        Unit::multiply(sums[step], read(i, step), b);
        end_of_matrix_step<kAtOnce>(i * kSteps + step);
      }
    }
  }
}

// Writes a wave's columns of sums: `rows` rows of a gradient, starting at `first`. Unless `seen(column)`, 0
// is written.
template <class Unit, DType kDType, int kHeadDim, class Seen>
FA_DEVICE void store_gradient(const typename Unit::C* sums, const BwdGradient& gradient, int64_t at,
                              int first, int rows, float factor, int lane, const Seen& seen) {
#pragma unroll
  for (int c = 0; c < Unit::kColumns; ++c) {
    const int row = first + Unit::column(lane, c);
    if (row >= rows) continue;
    char* const held = static_cast<char*>(gradient.data) + (at + row * gradient.row) * 2 +
                       held_byte<Unit, kHeadDim>(lane, 0);
    store_column<Unit, kDType, kHeadDim / Unit::kM>(sums, c, factor, seen(row), [=](int byte, auto words) {
      *reinterpret_cast<decltype(words)*>(held + byte) = words;
    });
  }
}

// Inputs of a head of q for tiles of queries.
struct QuerySource {
  HeadRows q, dout;
  const float *lse, *delta;
};

}  // namespace fa
