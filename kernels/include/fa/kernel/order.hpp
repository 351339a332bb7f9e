// Which workgroup of a launch computes what.  Host-testable.
#pragma once

namespace fa {

// A workgroup's place in the grid of a forward: block of rows, head, sequence of the batch.
struct WorkgroupPlace {
  int block, head, batch;
};

// Workgroup `number` of `total` on a GPU of several dies, of which each has an L2 of its own: the hardware gives
// them to the dies in turn.  The position that it takes instead: each die then has a run of neighbours, so that
// the blocks of a head, and the heads that share keys, find these in one L2.  A permutation.
constexpr unsigned neighbours_on_a_die(unsigned number, unsigned total, unsigned dies) {
  const unsigned die = number % dies, each = total / dies, more = total % dies;
  return die * each + (die < more ? die : more) + number / dies;
}

// Blocks of a head are neighbours, and heads of a sequence.
constexpr WorkgroupPlace place_at(unsigned position, unsigned blocks, unsigned heads) {
  const unsigned head = position / blocks;
  return {static_cast<int>(position - head * blocks), static_cast<int>(head % heads),
          static_cast<int>(head / heads)};
}

}  // namespace fa
