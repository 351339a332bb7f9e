"""The calls that users time for a kernel, its bins: as ``tune`` of the package makes them. Pure."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from wheel_builder.matrix.tuned.candidates import KERNEL
from wheel_builder.tables.tuning import DECODE, known_tuning, timed_calls


class Call(NamedTuple):
    """One call. ``length``: of the keys. ``width``: heads of q for each of k."""

    kind: str
    length: int
    causal: bool
    width: int
    mask: str
    dtype: str
    head_dim: int
    batch: int
    heads: int

    @property
    def words(self) -> str:
        what = f"{self.kind}{' causal' * self.causal} {self.length}, {self.batch} x {self.heads} heads"
        return f"{what}, width {self.width}" + (f", {self.mask} mask" if self.mask else "")


@cache
def calls_of(kernel: str) -> tuple[Call, ...]:
    """All calls of a kernel by its name, none of one that is not timed."""
    return tuple(_calls(kernel))


def _calls(kernel: str) -> Iterator[Call]:
    parsed, sizes = KERNEL.fullmatch(kernel), known_tuning().timed
    if parsed is None or parsed["op"] not in timed_calls():
        return
    of, own = timed_calls()[parsed["op"]], (parsed["dtype"], int(parsed["head_dim"]))
    for length in sizes.lengths:
        batch = sizes.decode_batch if of.kind == DECODE else max(1, sizes.tokens // length)
        for width in sizes.widths:
            for mask in of.masks:
                for causal in of.causal:
                    yield Call(of.kind, length, causal, width, mask, *own, batch, sizes.heads)
