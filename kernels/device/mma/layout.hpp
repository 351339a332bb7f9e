// How the lanes of a wave hold the operands of one matrix step, C[m][n] += A[m][k] * B[k][n].
//
// A step is one or more instructions. For every unit:
//   - lane l holds kRun consecutive k of row a_row(l) of A, from run_begin(l) on,
//   - it holds the same k of kColumns columns of B, column(l, c),
//   - it holds kRows rows of those columns of C: element r * kColumns + c is C[c_row(l, r)][column(l, c)],
//   - lanes whose numbers differ in bits of kPeers hold the same columns,
//   - with one column per lane, rows of C stored register by register, lane by lane, are in the order of
//     c_place(row), kN elements each.
//
// A tile of `rows` rows is a stack of the A of several steps. The place of a row in the tile (its "slot") is
// free as long as both sides agree. slot_of_row (its inverse: row_of_slot) gives each lane runs of
// consecutive rows as C elements: flat element f = step * kRows + r holds row held_begin(l, rows) +
// held_step(f). In this order, the C of one product is read, run by run, as the B of the next.
//
// All functions are constexpr. tests/engine/layout proves these statements on the CPU.
#pragma once

#include "device/arch/traits.hpp"

namespace fa {

template <MatrixUnit>
struct Layout;

template <>
struct Layout<MatrixUnit::mfma> {
  static constexpr int kWave = 64, kM = 32, kN = 32, kK = 16;
  static constexpr int kRun = 8, kColumns = 1, kRows = 16, kPeers = 32;
  static constexpr bool kChainsInRegisters = true;  // a lane's C is already its next B
  static constexpr bool kStoresHalves = false;      // either half of a register can be stored

  static constexpr int a_row(int lane) { return lane % 32; }
  static constexpr int run_begin(int lane) { return lane / 32 * 8; }
  static constexpr int column(int lane, int) { return lane % 32; }
  static constexpr int c_row(int lane, int r) { return r / 4 * 8 + lane / 32 * 4 + r % 4; }
  static constexpr int c_place(int row) { return (row / 8 * 4 + row % 4) * 2 + row / 4 % 2; }

  static constexpr int slot_of_row(int row, int) { return (row & ~12) | (row & 4) << 1 | (row & 8) >> 1; }
  static constexpr int row_of_slot(int slot, int rows) { return slot_of_row(slot, rows); }
  static constexpr int held_begin(int lane, int) { return lane / 32 * 8; }
  static constexpr int held_step(int f) { return f / 8 * 16 + f % 8; }
};

// Steps of fewer columns, for few queries.
template <MatrixUnit>
struct NarrowLayout;

// Half as many columns and rows, of instructions of 16x16. Two steps of C are a lane's run of the next
// product.
template <>
struct NarrowLayout<MatrixUnit::mfma> {
  static constexpr int kWave = 64, kM = 16, kN = 16, kK = 32;
  static constexpr int kRun = 8, kColumns = 1, kRows = 4, kPeers = 48;
  static constexpr bool kChainsInRegisters = true, kStoresHalves = false;

  static constexpr int a_row(int lane) { return lane % 16; }
  static constexpr int run_begin(int lane) { return lane / 16 * 8; }
  static constexpr int column(int lane, int) { return lane % 16; }
  static constexpr int c_row(int lane, int r) { return lane / 16 * 4 + r; }
  static constexpr int c_place(int row) { return row % 4 * 4 + row / 4; }

  static constexpr int slot_of_row(int row, int) {
    return (row & ~31) | (row & 24) >> 1 | (row & 4) << 2 | (row & 3);
  }
  static constexpr int row_of_slot(int slot, int) {
    return (slot & ~31) | (slot & 12) << 1 | (slot & 16) >> 2 | (slot & 3);
  }
  static constexpr int held_begin(int lane, int) { return lane / 16 * 8; }
  static constexpr int held_step(int f) { return f / 8 * 32 + f % 8; }
};

template <>
struct Layout<MatrixUnit::wmma> {
  static constexpr int kWave = 32, kM = 16, kN = 16, kK = 16;
  static constexpr int kRun = 16, kColumns = 1, kRows = 8, kPeers = 16;
  static constexpr bool kChainsInRegisters = false;  // the other half-wave has half of each column
  static constexpr bool kStoresHalves = true;

  static constexpr int a_row(int lane) { return lane % 16; }
  static constexpr int run_begin(int) { return 0; }
  static constexpr int column(int lane, int) { return lane % 16; }
  static constexpr int c_row(int lane, int r) { return 2 * r + lane / 16; }
  static constexpr int c_place(int row) { return row; }

  static constexpr int slot_of_row(int row, int) { return (row & ~15) | (row & 7) << 1 | (row & 8) >> 3; }
  static constexpr int row_of_slot(int slot, int) {
    return (slot & ~15) | (slot & 14) >> 1 | (slot & 1) << 3;
  }
  static constexpr int held_begin(int lane, int) { return lane / 16 * 8; }
  static constexpr int held_step(int f) { return f / 8 * 16 + f % 8; }
};

// The instruction contracts k in another order. Both operands use the same order, so the result is
// unaffected. Here the order is that of a result's rows.
template <>
struct Layout<MatrixUnit::wmma_split> {
  static constexpr int kWave = 32, kM = 16, kN = 16, kK = 16;
  static constexpr int kRun = 8, kColumns = 1, kRows = 8, kPeers = 16;
  static constexpr bool kChainsInRegisters = true, kStoresHalves = false;

  static constexpr int a_row(int lane) { return lane % 16; }
  static constexpr int run_begin(int lane) { return lane / 16 * 8; }
  static constexpr int column(int lane, int) { return lane % 16; }
  static constexpr int c_row(int lane, int r) { return lane / 16 * 8 + r; }
  static constexpr int c_place(int row) { return row % 8 * 2 + row / 8; }

  static constexpr int slot_of_row(int row, int) { return row; }
  static constexpr int row_of_slot(int slot, int) { return slot; }
  static constexpr int held_begin(int lane, int) { return lane / 16 * 8; }
  static constexpr int held_step(int f) { return f / 8 * 16 + f % 8; }
};

// No instruction spans lanes: 8 lanes share a column group, 4 lanes share a row, and each lane multiplies its
// one row with its four columns.
template <>
struct Layout<MatrixUnit::dot2> {
  static constexpr int kWave = 32, kM = 8, kN = 16, kK = 8;
  static constexpr int kRun = 8, kColumns = 4, kRows = 1, kPeers = 7;
  static constexpr bool kChainsInRegisters = false, kStoresHalves = false;

  static constexpr int a_row(int lane) { return lane % 8; }
  static constexpr int run_begin(int) { return 0; }
  static constexpr int column(int lane, int c) { return lane / 8 * 4 + c; }
  static constexpr int c_row(int lane, int) { return lane % 8; }

  static constexpr int slot_of_row(int row, int rows) { return row % (rows / 8) * 8 + row / (rows / 8); }
  static constexpr int row_of_slot(int slot, int rows) { return slot % 8 * (rows / 8) + slot / 8; }
  static constexpr int held_begin(int lane, int rows) { return lane % 8 * (rows / 8); }
  static constexpr int held_step(int f) { return f; }
};

// Likewise with 64 lanes: twice the column groups.
template <>
struct Layout<MatrixUnit::dot2_64> : Layout<MatrixUnit::dot2> {
  static constexpr int kWave = 64, kN = 32;
};

// A quarter of the columns, and twice the rows: 16 lanes share two columns, each with a row of its own.
template <>
struct NarrowLayout<MatrixUnit::dot2> {
  static constexpr int kWave = 32, kM = 16, kN = 4, kK = 8;
  static constexpr int kRun = 8, kColumns = 2, kRows = 1, kPeers = 15;
  static constexpr bool kChainsInRegisters = false, kStoresHalves = false;

  static constexpr int a_row(int lane) { return lane % 16; }
  static constexpr int run_begin(int) { return 0; }
  static constexpr int column(int lane, int c) { return lane / 16 * 2 + c; }
  static constexpr int c_row(int lane, int) { return lane % 16; }

  static constexpr int slot_of_row(int row, int rows) { return row % (rows / 16) * 16 + row / (rows / 16); }
  static constexpr int row_of_slot(int slot, int rows) { return slot % 16 * (rows / 16) + slot / 16; }
  static constexpr int held_begin(int lane, int rows) { return lane % 16 * (rows / 16); }
  static constexpr int held_step(int f) { return f; }
};

template <>
struct NarrowLayout<MatrixUnit::dot2_64> : NarrowLayout<MatrixUnit::dot2> {
  static constexpr int kWave = 64, kN = 8;
};

// No lanes share a row: each has all columns. With own_keys.
struct LoneLayout {
  static constexpr int kWave = 64, kM = 64, kN = 4, kK = 8;
  static constexpr int kRun = 8, kColumns = 4, kRows = 1, kPeers = 63;
  static constexpr bool kChainsInRegisters = false, kStoresHalves = false;

  static constexpr int a_row(int lane) { return lane; }
  static constexpr int run_begin(int) { return 0; }
  static constexpr int column(int, int c) { return c; }
  static constexpr int c_row(int lane, int) { return lane; }

  static constexpr int slot_of_row(int row, int rows) { return row % (rows / 64) * 64 + row / (rows / 64); }
  static constexpr int row_of_slot(int slot, int rows) { return slot % 64 * (rows / 64) + slot / 64; }
  static constexpr int held_begin(int lane, int rows) { return lane * (rows / 64); }
  static constexpr int held_step(int f) { return f; }
};

constexpr int narrow_columns(MatrixUnit unit, bool own_keys) {
  if (unit == MatrixUnit::mfma) return NarrowLayout<MatrixUnit::mfma>::kN;
  if (unit == MatrixUnit::dot2_64 && own_keys) return LoneLayout::kN;
  return unit == MatrixUnit::dot2_64 ? NarrowLayout<MatrixUnit::dot2_64>::kN
                                     : NarrowLayout<MatrixUnit::dot2>::kN;
}

// Scalar registers are short: a condition of 64 lanes takes two, and each column has some.
template <class Unit>
inline constexpr bool kManyConditions = Unit::kWave == 64 && Unit::kColumns > 1;

// With operands of fp8: runs of 16 elements. In units that chain, a lane's C of one step of 32 rows, or of
// two of 16, is its whole run of the next product.
template <MatrixUnit>
struct Fp8Layout;

template <>
struct Fp8Layout<MatrixUnit::mfma> : Layout<MatrixUnit::mfma> {
  static constexpr int kK = 32, kRun = 16;

  static constexpr int run_begin(int lane) { return lane / 32 * 16; }
  static constexpr int slot_of_row(int row, int) {
    return (row & ~31) | (row & 12) << 1 | (row & 16) >> 2 | (row & 3);
  }
  static constexpr int row_of_slot(int slot, int) {
    return (slot & ~31) | (slot & 24) >> 1 | (slot & 4) << 2 | (slot & 3);
  }
  static constexpr int held_begin(int lane, int) { return lane / 32 * 16; }
  static constexpr int held_step(int f) { return f / 16 * 32 + f % 16; }
};

// With instructions of 64 elements: runs of 32, a lane's C of two steps.
struct WideFp8Layout : Layout<MatrixUnit::mfma> {
  static constexpr int kK = 64, kRun = 32;

  static constexpr int run_begin(int lane) { return lane / 32 * 32; }
  static constexpr int slot_of_row(int row, int) {
    return (row & ~63) | (row & 28) << 1 | (row & 32) >> 3 | (row & 3);
  }
  static constexpr int row_of_slot(int slot, int) {
    return (slot & ~63) | (slot & 56) >> 1 | (slot & 4) << 3 | (slot & 3);
  }
  static constexpr int held_begin(int lane, int) { return lane / 32 * 32; }
  static constexpr int held_step(int f) { return f / 32 * 64 + f % 32; }
};

template <>
struct Fp8Layout<MatrixUnit::wmma_split> : Layout<MatrixUnit::wmma_split> {
  static constexpr int kK = 32, kRun = 16;

  static constexpr int run_begin(int lane) { return lane / 16 * 16; }
  static constexpr int slot_of_row(int row, int) { return (row & ~24) | (row & 8) << 1 | (row & 16) >> 1; }
  static constexpr int row_of_slot(int slot, int rows) { return slot_of_row(slot, rows); }
  static constexpr int held_begin(int lane, int) { return lane / 16 * 16; }
  static constexpr int held_step(int f) { return f / 16 * 32 + f % 16; }
};

}  // namespace fa
