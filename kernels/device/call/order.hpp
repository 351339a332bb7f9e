// Assigns work to the workgroups of a launch. Host-testable.
#pragma once

namespace fa {

// A workgroup's place in a grid: block of rows, head, sequence of the batch.
struct WorkgroupPlace {
  int block, head, batch;
};

// Launches with more workgroups are not reordered. Numbers below this are divided by `quotient_by`, and
// numbers below 2^24 take half the instructions of larger ones.
inline constexpr unsigned kMostReordered = 1u << 21;

constexpr unsigned short_quotient(unsigned x, unsigned d) { return x % (1u << 24) / (d % (1u << 24)); }

// x / d for x below kMostReordered. `reciprocal` is 1 / d, or one unit in the last place off. (x + 1/2) / d
// is at least 1/2 / d from a whole number, and its error here is below (x + 1/2) / d * 2^-22.4.
constexpr unsigned quotient_by(unsigned x, float reciprocal) {
  return static_cast<unsigned>((static_cast<float>(x) + 0.5f) * reciprocal);
}

// Workgroups of `rows` rows, fewer than 2^31.
template <int kRows>
constexpr unsigned short_blocks(unsigned rows) {
  return (rows + (kRows - 1)) / kRows;
}

// Position of workgroup `number` of `total` on a GPU of several XCDs, dies with their own L2, to which the
// hardware assigns workgroups round robin. Each die gets a run of neighbouring positions, so the blocks of a
// head, and the heads sharing keys, use one L2. A permutation of the numbers below total. `each` and `more`
// are total / dies and total % dies. `quotient` divides.
template <class Quotient = decltype(short_quotient)>
constexpr unsigned neighbours_on_a_die(unsigned number, unsigned dies, unsigned each, unsigned more,
                                       const Quotient& quotient = short_quotient) {
  const unsigned turn = quotient(number, dies), die = number - turn * dies;
  return die * each + (die < more ? die : more) + turn;
}

// Blocks of a head are neighbours, and so are the heads of a sequence.
template <class Quotient = decltype(short_quotient)>
constexpr WorkgroupPlace place_at(unsigned position, unsigned blocks, unsigned heads,
                                  const Quotient& quotient = short_quotient) {
  const unsigned row = quotient(position, blocks), batch = quotient(row, heads);
  return {static_cast<int>(position - row * blocks), static_cast<int>(row - batch * heads),
          static_cast<int>(batch)};
}

// Undoes a grid whose 1 << together heads start their blocks in turn: block 0 of each of them, then block 1.
// Block 0 of a causal call has the most work, so the last workgroups of a launch have little.
constexpr WorkgroupPlace in_turn(WorkgroupPlace place, int together) {
  return {place.block >> together, (place.head << together) + (place.block & ((1 << together) - 1)),
          place.batch};
}

// The work of the workgroup at `own` of a launch of `blocks` workgroups for each of `heads` heads. `Params`
// have the order, made by host/plan/order.hpp. kDies: of an arch whose GPUs may have several dies.
template <bool kDies, class Params, class Quotient = decltype(short_quotient)>
constexpr WorkgroupPlace place_among(WorkgroupPlace own, const Params& params, unsigned blocks,
                                     unsigned heads, const Quotient& quotient = short_quotient) {
  if (!kDies || params.dies <= 1) return in_turn(own, params.together);
  const unsigned row = blocks << params.together, groups = heads >> params.together;
  const unsigned number = own.block + row * (own.head + groups * own.batch);
  const unsigned position =
      neighbours_on_a_die(number, params.dies, params.die_each, params.die_more, quotient);
  return in_turn(place_at(position, row, groups, quotient), params.together);
}

}  // namespace fa
