// Assigns work to the workgroups of a launch. Host-testable.
#pragma once

#include "device/call/params.hpp"

namespace fa {

// A workgroup's place in a grid: block of rows, head, sequence of the batch.
struct WorkgroupPlace {
  int block, head, batch;
};

// Launches with more workgroups are not reordered: quotients by few dies have no shift.
inline constexpr unsigned kMostReordered = 1u << 21;
inline constexpr unsigned kMostDies = 1u << 11;

// 2^(32 + shift) / d. It falls short by at most d / d.
constexpr uint32_t factor_of(unsigned d, unsigned shift) {
  return static_cast<uint32_t>(((uint64_t{1} << (32 + shift)) - 1) / d);
}

// What divides by `d` from 1 on. The shift is log2 of d, rounded down.
constexpr Divisor divisor_of(unsigned d) {
  unsigned shift = 0;
  while (d >> shift > 1) ++shift;
  return {d, factor_of(d, shift), shift};
}

// x / d in scalar registers. factor * d is 2^(32 + shift) - e, with e from 1 to d. So the product falls short
// of (x + 1) / d by (x + 1) * e / d / 2^(32 + shift), which is above 0, and at most 1 / d if (x + 1) * e is
// at most 2^(32 + shift): for x below 2^31 with a Divisor's shift, for x below kMostReordered without one if
// d is at most kMostDies.
constexpr unsigned short_quotient(unsigned x, unsigned factor) {
  return static_cast<unsigned>(uint64_t{x + 1} * factor >> 32);
}
constexpr unsigned quotient(unsigned x, const Divisor& d) { return short_quotient(x, d.factor) >> d.shift; }

// Workgroups of `rows` rows, fewer than 2^31.
template <int kRows>
constexpr unsigned short_blocks(unsigned rows) {
  return (rows + (kRows - 1)) / kRows;
}

// Position of workgroup `number` on a GPU of several XCDs, dies with their own L2, to which the hardware
// assigns workgroups round robin. Each die gets a run of neighbouring positions, so the blocks of a head, and
// the heads sharing keys, use one L2. A permutation of the numbers of a launch.
constexpr unsigned neighbours_on_a_die(unsigned number, const LaunchOrder& order) {
  const unsigned turn = short_quotient(number, order.die_factor), die = number - turn * order.dies;
  return die * order.die_each + (die < order.die_more ? die : order.die_more) + turn;
}

// Blocks of a head are neighbours, and so are the heads of a sequence.
constexpr WorkgroupPlace place_at(unsigned position, const LaunchOrder& order) {
  const unsigned group = quotient(position, order.row), batch = quotient(group, order.groups);
  return {static_cast<int>(position - group * order.row.number),
          static_cast<int>(group - batch * order.groups.number), static_cast<int>(batch)};
}

// Undoes a grid whose 1 << together heads start their blocks in turn: block 0 of each of them, then block 1.
// A reversed order has the last block first.
constexpr WorkgroupPlace in_turn(WorkgroupPlace place, const LaunchOrder& order) {
  return {((place.block >> order.together) ^ order.flip) + order.past,
          (place.head << order.together) + (place.block & order.in_turn), place.batch};
}

// The work of the workgroup at `own`. The host makes the order (host/plan/order.hpp). kDies: of an arch whose
// GPUs may have several dies.
template <bool kDies>
constexpr WorkgroupPlace place_among(WorkgroupPlace own, const LaunchOrder& order) {
  WorkgroupPlace found = own;
  if (kDies && __builtin_expect(order.dies > 1, 1)) {
    const unsigned number = own.block + order.row.number * (own.head + order.groups.number * own.batch);
    found = place_at(neighbours_on_a_die(number, order), order);
  }
  return in_turn(found, order);
}

}  // namespace fa
