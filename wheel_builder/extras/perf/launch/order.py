"""Orders of a launch's workgroups: what every die starts, one after another.

Hardware gives workgroups to dies round robin by their number in the grid. A kernel may compute another place
from its number (kernels/device/call/order.hpp); the orders here are those places.
"""

from collections.abc import Callable, Sequence

from wheel_builder.extras.perf.launch.shapes import Work

Queues = tuple[tuple[Work, ...], ...]  # of each die
Order = Callable[[Sequence[Work], int], Queues]


def as_numbered(works: Sequence[Work], dies: int) -> Queues:
    """The grid's own order: neighbours lie on different dies."""
    return tuple(tuple(works[die::dies]) for die in range(dies))


def heads_on_dies(works: Sequence[Work], dies: int) -> Queues:
    """Each die gets a run of neighbours, so the blocks of a head share an L2."""
    each, more = divmod(len(works), dies)
    ends = [0]
    for die in range(dies):
        ends.append(ends[-1] + each + (die < more))
    return tuple(tuple(works[ends[die] : ends[die + 1]]) for die in range(dies))


def heads_in_turn(together: int) -> Order:
    """As ``heads_on_dies``; block 0 of ``together`` heads, then block 1. Block 0 has the most keys."""

    def order(works: Sequence[Work], dies: int) -> Queues:
        return tuple(_interleaved(queue, together) for queue in heads_on_dies(works, dies))

    return order


MOST_IN_TURN = 16
BYTES_IN_TURN = 32 << 20  # of what all workgroups of a turn's heads read. Beyond, they leave the last caches


def most_in_turn(heads: int, batch: int, dies: int, bytes_of_head: int) -> int:
    """Heads that start their blocks in turn, as the host chooses them: a die has whole groups of them."""
    found = 1
    while (
        found < MOST_IN_TURN
        and not heads % (2 * found)
        and not heads * batch % (2 * found * dies)
        and 2 * found * bytes_of_head <= BYTES_IN_TURN
    ):
        found *= 2
    return found


def _interleaved(queue: Sequence[Work], together: int) -> tuple[Work, ...]:
    heads: list[list[Work]] = []
    for work in queue:
        if not heads or work.block <= heads[-1][-1].block:
            heads.append([])
        heads[-1].append(work)
    return tuple(
        work
        for at in range(0, len(heads), together)
        for work in sorted((each for head in heads[at : at + together] for each in head), key=_block)
    )


def _block(work: Work) -> int:
    return work.block
