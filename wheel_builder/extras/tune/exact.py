"""Attention with biases and its gradients in plain Python, and what the numerics rule allows.

In float64, and rounded at every tensor stored by PyTorch's operations, as ``emulator.reference`` does.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from wheel_builder.machine_code.emulator.attention import Case
from wheel_builder.machine_code.emulator.formats import rounded
from wheel_builder.machine_code.emulator.reference import dot
from wheel_builder.machine_code.emulator.rule import tolerances

Row = Sequence[float]
Matrix = Sequence[Row]


@dataclass(frozen=True)
class Given:
    """One head. ``biases`` are added to scores, by row and key: -inf hides a key."""

    q: Matrix
    k: Matrix
    v: Matrix
    dout: Matrix
    biases: Matrix
    scale: float


@dataclass(frozen=True)
class Results:
    """By row, ``dk`` and ``dv`` by key. A row that sees no key has zeros and a log-sum-exp of +inf."""

    out: Matrix
    lse: Row
    delta: Row
    dq: Matrix
    dk: Matrix
    dv: Matrix


def attention(given: Given, dtype: str = "") -> Results:
    """With a ``dtype``, tensors are rounded to it."""

    def keep(values: Row) -> Row:
        return rounded(values, dtype) if dtype else values

    columns_of_k, columns_of_v = (_turned(rows) for rows in (given.k, given.v))
    out, lse, delta, dq, weights, of_scores = [], [], [], [], [], []
    for query, dout, biases in zip(given.q, given.dout, given.biases, strict=True):
        scores = keep([x * given.scale for x in keep([dot(query, key) for key in given.k])])
        p, row_lse = _softmax([x + bias for x, bias in zip(scores, biases, strict=True)], keep)
        dp = keep([dot(dout, value) for value in given.v])
        row_delta = dot(p, dp)
        ds = keep([a * (b - row_delta) for a, b in zip(p, dp, strict=True)])
        ds = keep([x * given.scale for x in ds])
        out.append(keep([dot(p, column) for column in columns_of_v]))
        dq.append(keep([dot(ds, column) for column in columns_of_k]))
        lse.append(row_lse)
        delta.append(row_delta)
        weights.append(p)
        of_scores.append(ds)
    dk, dv = _product(of_scores, given.q, keep), _product(weights, given.dout, keep)
    return Results(out, lse, delta, dq, dk, dv)


def _turned(rows: Matrix) -> Matrix:
    return list(zip(*rows, strict=True))


def _softmax(scores: Row, keep: Callable[[Row], Row]) -> tuple[Row, float]:
    top = max(scores)
    if top == -math.inf:
        return [0.0] * len(scores), math.inf
    powers = [math.exp(x - top) for x in scores]
    total = math.fsum(powers)
    return keep([x / total for x in powers]), top + math.log(total)


def _product(weights: Matrix, rows: Matrix, keep: Callable[[Row], Row]) -> Matrix:
    """Row j is the sum over i of weights[i][j] * rows[i]."""
    columns = _turned(rows)
    return [keep([dot(weight, column) for column in columns]) for weight in _turned(weights)]


@dataclass(frozen=True)
class Expected:
    """A call's heads, and their results in float64 and rounded. All heads share one of keys."""

    case: Case
    heads: tuple[Given, ...]
    exact: tuple[Results, ...]
    plain: tuple[Results, ...]

    def of(self, name: str, *, plain: bool = False) -> tuple[Matrix, ...]:
        """By head, or of keys the sum over heads."""
        found = [getattr(each, name) for each in (self.plain if plain else self.exact)]
        return (reduce(_added, found),) if name in {"dk", "dv"} else tuple(found)

    def allowed(self, name: str) -> float:
        """The largest allowed error of ``out`` or a gradient."""
        pairs = zip(self.of(name, plain=True), self.of(name), strict=True)
        plain = max(_error(found, exact) for found, exact in pairs)
        if name == "out":
            largest = _most(each.v for each in self.heads)
            return tolerances.allowed(plain, terms=self.case.seqlen_k, largest=largest)
        q, k, dout = (_most(getattr(each, what) for each in self.heads) for what in ("q", "k", "dout"))
        of_scores = self.case.scale * max(magnitude_of(each.dout, each.v) for each in self.heads)
        return tolerances.allowed(
            tolerances.least_error(plain, self.case.dtype, _most(self.of(name))),
            terms=tolerances.WEIGHT_ROUNDINGS,
            largest={"dq": of_scores * k, "dk": of_scores * q, "dv": dout}[name],
            factor=tolerances.GRADIENT_FACTOR,
        )


def _added(one: Matrix, other: Matrix) -> Matrix:
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(one, other, strict=True)]


def _error(found: Matrix, exact: Matrix) -> float:
    return max(abs(a - b) for rows in zip(found, exact, strict=True) for a, b in zip(*rows, strict=True))


def _most(matrices: Iterable[Matrix]) -> float:
    return max(abs(x) for matrix in matrices for row in matrix for x in row)


def magnitude_of(one: Matrix, other: Matrix) -> float:
    """The largest sum of the magnitudes of a product's terms."""
    one, other = ([[abs(x) for x in row] for row in rows] for rows in (one, other))
    return max(dot(a, b) for a in one for b in other)


def wrong(name: str, found: Sequence[Matrix], expected: Expected) -> Iterator[str]:
    allowed = expected.allowed(name)
    for head, (matrix, exact) in enumerate(zip(found, expected.of(name), strict=True)):
        for row, (values, wanted) in enumerate(zip(matrix, exact, strict=True)):
            for at, (value, want) in enumerate(zip(values, wanted, strict=True)):
                if not abs(value - want) <= allowed:
                    yield f"{name}{[head, row, at]} is {value:g}, expected {want:g}"
