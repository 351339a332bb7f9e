"""Attention in plain Python: in float64, and rounded like a plain computation in the tensors' own type.

PyTorch is missing from the pipeline's environment, and the answer must be independent of installed packages.
The rounded form rounds at every tensor stored by PyTorch's operations. tests/engine/emulator compares it
with PyTorch's own.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from wheel_builder.machine_code.emulator.formats import rounded

Row = Sequence[float]


@dataclass(frozen=True)
class Attended:
    """One row of the output (head_dim numbers) and its log-sum-exp. A fully masked row is 0 and +inf.

    ``magnitude`` is the largest sum of the magnitudes of a score's terms.
    """

    out: Row
    lse: float
    magnitude: float = 0.0


def attend(
    query: Row, keys: Sequence[Row], columns: Sequence[Row], scale: float, dtype: str = ""
) -> Attended:
    """Attention of one query row over its visible keys.

    ``columns`` are the columns of V over the same keys. With a ``dtype``, scores, probabilities and output
    are rounded to it, as by plain tensor operations.
    """
    if not keys:
        return Attended([0.0] * len(columns), math.inf)

    def keep(values: Row) -> Row:
        return rounded(values, dtype) if dtype else values

    scores = keep([x * scale for x in keep([dot(query, key) for key in keys])])
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    total = math.fsum(powers)
    weights = keep([power / total for power in powers])
    sizes = [abs(x) for x in query]
    magnitude = max(dot(sizes, [abs(x) for x in key]) for key in keys) * abs(scale)
    return Attended(keep([dot(weights, column) for column in columns]), math.log(total) + top, magnitude)


def dot(one: Row, other: Row) -> float:
    return float(sum(map(operator.mul, one, other)))


def visible(row: int, seqlen_q: int, seqlen_k: int, *, causal: bool) -> int:
    """Number of keys visible to a query row. The causal mask is aligned to the bottom right."""
    return max(0, min(seqlen_k, row + seqlen_k - seqlen_q + 1)) if causal else seqlen_k
