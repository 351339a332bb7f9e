"""Attention in plain Python: float64, and as a plain computation in the tensors' own type would give it.

Not PyTorch, which the pipeline's environment does not have: the answer is not to depend on what is installed.
The second rounds where PyTorch's operations store a tensor; tests/emulator compares it with PyTorch's own.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from wheel_builder.emulator.formats import rounded

Row = Sequence[float]


@dataclass(frozen=True)
class Attended:
    """One row of the output (head_dim numbers) and its logsumexp; a row that sees no key is 0 and +inf."""

    out: Row
    lse: float


def attend(
    query: Row, keys: Sequence[Row], columns: Sequence[Row], scale: float, dtype: str = ""
) -> Attended:
    """Attention of one query row over the keys that it sees.

    ``columns`` are the columns of V over the same keys.  With a ``dtype``, scores, probabilities, output are
    each rounded to it, as plain tensor operations do.
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
    return Attended(keep([dot(weights, column) for column in columns]), math.log(total) + top)


def dot(one: Row, other: Row) -> float:
    return float(sum(map(operator.mul, one, other)))


def visible(row: int, seqlen_q: int, seqlen_k: int, *, causal: bool) -> int:
    """How many keys a query row sees; the causal mask is aligned to the bottom right."""
    return max(0, min(seqlen_k, row + seqlen_k - seqlen_q + 1)) if causal else seqlen_k
