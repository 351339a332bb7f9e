// Which workgroup of a launch computes what.  Host-testable.
#pragma once

namespace fa {

// A workgroup's place in the grid of a forward: block of rows, head, sequence of the batch.
struct WorkgroupPlace {
  int block, head, batch;
};

// Launches with more workgroups are not reordered: numbers below this are divided in half the instructions.
inline constexpr unsigned kMostReordered = 1u << 24;

constexpr unsigned short_number(unsigned x) { return x % kMostReordered; }

// Workgroup `number` of `total` on a GPU of several XCDs, dies with an L2 of their own: the hardware
// assigns them round robin.  The position that it takes instead: each die then has a run of neighbours,
// so that the blocks of a head, and the heads that share keys, find these in one L2.  A permutation of
// numbers below total; `each` and `more` are total / dies and total % dies.
constexpr unsigned neighbours_on_a_die(unsigned number, unsigned dies, unsigned each, unsigned more) {
  const unsigned turn = short_number(number) / short_number(dies), die = number - turn * dies;
  return die * each + (die < more ? die : more) + turn;
}

// Blocks of a head are neighbours, and heads of a sequence.
constexpr WorkgroupPlace place_at(unsigned position, unsigned blocks, unsigned heads) {
  const unsigned row = short_number(position) / short_number(blocks);
  const unsigned batch = short_number(row) / short_number(heads);
  return {static_cast<int>(position - row * blocks), static_cast<int>(row - batch * heads),
          static_cast<int>(batch)};
}

}  // namespace fa
