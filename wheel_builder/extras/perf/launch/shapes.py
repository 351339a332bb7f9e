"""What a launch computes: its workgroups with their keys, before anything orders them."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A call with ``batch`` sequences of ``queries`` and ``keys``, masked bottom right if ``causal``.

    ``window``: keys left of the diagonal that a row sees, or -1 for all. Heads of q share heads of k and v.
    """

    queries: int
    keys: int
    heads: int
    heads_k: int
    batch: int = 1
    causal: bool = False
    window: int = -1

    @property
    def name(self) -> str:
        """As the tables write it: "8192 x 32 causal"."""
        mask = " causal" * self.causal + f" window {self.window}" * (self.window >= 0)
        keys = f"{self.queries}" if self.queries == self.keys else f"{self.queries}/{self.keys}"
        heads = f"{self.heads}" if self.heads == self.heads_k else f"{self.heads}/{self.heads_k}"
        return f"{keys} x {heads}" + f" batch {self.batch}" * (self.batch > 1) + mask


@dataclass(frozen=True)
class Work:
    """A workgroup: the rows that it reads, ``begin`` to ``end`` of a head in memory, and its place there.

    A forward reads keys and values, a backward by keys reads rows of q and dout.
    """

    block: int
    head: int
    begin: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.begin


def seen_keys(shape: Shape, first: int, rows: int) -> tuple[int, int]:
    """The keys that rows ``first`` and following see, without a mask inside of tiles."""
    if not shape.causal:
        return 0, shape.keys
    diagonal = shape.keys - shape.queries
    end = min(shape.keys, max(0, first + rows + diagonal))
    begin = 0 if shape.window < 0 else max(0, first + diagonal - shape.window)
    return min(begin, end), end


def seen_queries(shape: Shape, first: int, keys: int) -> tuple[int, int]:
    """The queries that see keys ``first`` and following."""
    if not shape.causal:
        return 0, shape.queries
    diagonal = shape.keys - shape.queries
    begin = min(shape.queries, max(0, first - diagonal))
    last = first + keys - diagonal + shape.window
    end = shape.queries if shape.window < 0 else min(shape.queries, max(0, last))
    return begin, max(begin, end)


def forward_works(shape: Shape, rows: int) -> Iterator[Work]:
    """The workgroups of a forward in the order of its grid: blocks of a head, heads, sequences.

    The kernel gives the last rows, with the most keys, to block 0 of a causal call.
    """
    blocks = -(-shape.queries // rows)
    group = shape.heads // shape.heads_k
    for sequence in range(shape.batch):
        for head in range(shape.heads):
            for block in range(blocks):
                first = rows * (blocks - 1 - block if shape.causal else block)
                begin, end = seen_keys(shape, first, rows)
                yield Work(block, sequence * shape.heads_k + head // group, begin, end)


def backward_works(shape: Shape, rows: int) -> Iterator[Work]:
    """The workgroups of a backward by keys. Block 0 has the first keys, which most queries see."""
    blocks = -(-shape.keys // rows)
    for sequence in range(shape.batch):
        for head in range(shape.heads):
            for block in range(blocks):
                begin, end = seen_queries(shape, rows * block, rows)
                yield Work(block, sequence * shape.heads + head, begin, end)
