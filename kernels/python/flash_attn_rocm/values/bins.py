"""The calls that ``tune`` times for a kernel, its bins. A report needs times of all of them.

Nothing is imported from the package, because the pipeline loads this file without PyTorch.
"""

from collections.abc import Iterator
from typing import NamedTuple

DECODE = "decode"


class Bin(NamedTuple):
    """One call. ``width``: heads of q for a head of k. ``length``: keys, and queries except for decode."""

    kind: str
    length: int
    causal: bool
    width: int
    mask: str
    dtype: str
    head_dim: int
    batch: int
    heads: int

    def __str__(self) -> str:
        words = [self.kind, str(self.length), "causal" * self.causal, self.mask]
        return " ".join(filter(None, [*words, f"GQA {self.width}" if self.width > 1 else ""]))


class Timed(NamedTuple):
    """Sizes of the calls. ``tokens`` and ``heads``: of q. ``decode_batch``: sequences of a decode."""

    lengths: tuple[int, ...]
    widths: tuple[int, ...]
    tokens: int
    heads: int
    decode_batch: int


def bins(
    calls: tuple[str, tuple[bool, ...], tuple[str, ...]], dtype: str, head_dim: int, timed: Timed
) -> Iterator[Bin]:
    """All bins of a kernel. ``calls``: their kind, whether they are causal, and their masks."""
    kind, causals, masks = calls
    for length in timed.lengths:
        batch = timed.decode_batch if kind == DECODE else max(1, timed.tokens // length)
        for width in timed.widths:
            for mask in masks:
                for causal in causals:
                    yield Bin(kind, length, causal, width, mask, dtype, head_dim, batch, timed.heads)
