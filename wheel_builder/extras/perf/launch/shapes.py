"""What a launch computes: its workgroups with their keys, before anything orders them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    """A call with ``batch`` sequences of ``queries`` and ``keys``, masked bottom right if ``causal``.

    ``window``: keys left of the diagonal that a row sees, or -1 for all. Heads of q share heads of k and v.
    ``lengths``: of packed sequences, each with as many queries as keys, instead of ``batch`` equal ones.
    """

    queries: int
    keys: int
    heads: int
    heads_k: int
    batch: int = 1
    causal: bool = False
    window: int = -1
    lengths: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """As the tables write it: "8192 x 32 causal"."""
        mask = " causal" * self.causal + f" window {self.window}" * (self.window >= 0)
        keys = f"{self.queries}" if self.queries == self.keys else f"{self.queries}/{self.keys}"
        heads = f"{self.heads}" if self.heads == self.heads_k else f"{self.heads}/{self.heads_k}"
        if self.lengths:
            keys = f"{len(self.lengths)} of {min(self.lengths)} to {max(self.lengths)}"
        return f"{keys} x {heads}" + f" batch {self.batch}" * (self.batch > 1) + mask

    @property
    def sequences(self) -> tuple["Shape", ...]:
        """Each sequence as a call of its own."""
        one = replace(self, batch=1, lengths=())
        return tuple(replace(one, queries=n, keys=n) for n in self.lengths) or (one,) * self.batch

    @property
    def pairs(self) -> int:
        """Visible pairs of a query and a key, of all heads."""
        return self.heads * sum(map(_pairs, self.sequences))


def packed(lengths: Sequence[int], heads: int, *, causal: bool = True) -> Shape:
    """Packed sequences of these lengths."""
    most = max(lengths)
    return Shape(most, most, heads, heads, len(lengths), causal=causal, lengths=tuple(lengths))


def _pairs(shape: Shape) -> int:
    if not shape.causal:
        return shape.queries * shape.keys
    seen = (seen_keys(shape, row, 1) for row in range(shape.queries))
    return sum(end - begin for begin, end in seen)


@dataclass(frozen=True)
class Work:
    """A workgroup: the rows that it reads, ``begin`` to ``end`` of a head in memory, and its place there.

    A forward reads keys and values, a backward by keys reads rows of q and dout.
    """

    block: int
    head: int
    begin: int
    end: int
    idle: bool = False  # beyond its sequence: it ends at once

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

    The kernel gives the last rows, with the most keys, to block 0 of a causal call. The grid has the blocks
    of the longest sequence.
    """
    grid = -(-shape.queries // rows)
    group = shape.heads // shape.heads_k
    for number, sequence in enumerate(shape.sequences):
        blocks = -(-sequence.queries // rows)
        for head in range(shape.heads):
            of_k = number * shape.heads_k + head // group
            for block in range(blocks):
                first = rows * (blocks - 1 - block if shape.causal else block)
                yield Work(block, of_k, *seen_keys(sequence, first, rows))
            yield from (Work(block, of_k, 0, 0, idle=True) for block in range(blocks, grid))


def backward_works(shape: Shape, rows: int) -> Iterator[Work]:
    """The workgroups of a backward by keys. Block 0 has the first keys, which most queries see.

    Without heads that share keys.
    """
    grid = -(-shape.keys // rows)
    for number, sequence in enumerate(shape.sequences):
        blocks = -(-sequence.keys // rows)
        for head in range(shape.heads):
            place = number * shape.heads + head
            for block in range(blocks):
                yield Work(block, place, *seen_queries(sequence, rows * block, rows))
            yield from (Work(block, place, 0, 0, idle=True) for block in range(blocks, grid))


def decode_works(shape: Shape, parts: int) -> Iterator[Work]:
    """The workgroups of a decode: a part of the keys of each head of keys, for all heads that share it."""
    each = -(-shape.keys // parts)
    for head in range(shape.batch * shape.heads_k):
        for part in range(parts):
            yield Work(part, head, min(shape.keys, part * each), min(shape.keys, (part + 1) * each))
