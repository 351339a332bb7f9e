"""Attention's gradients in plain Python: float64, and rounded like plain operations of the tensors' type."""

import math
import operator

from wheel_builder.machine_code.emulator.formats import rounded


def gradients(q, k, v, dout, scale, dtype="", *, causal=False):
    """dq, dk and dv of one head, from lists of rows. With a dtype every tensor is rounded to it.

    ``causal``: as many queries as keys, each sees those up to its own.
    """

    def keep(rows):
        return [rounded(row, dtype) for row in rows] if dtype else rows

    scores = keep([[x * scale for x in row] for row in keep(product(q, k))])
    if causal:
        scores = [hidden(row, place + 1) for place, row in enumerate(scores)]
    weights = keep([softmax(row) for row in scores])
    grown = keep(product(dout, v))
    ds = keep([row_gradient(p, dp) for p, dp in zip(weights, grown, strict=True)])
    ds = keep([[x * scale for x in row] for row in ds])
    dq = keep(product(ds, columns(k)))
    dk = keep(product(columns(ds), columns(q)))
    return dq, dk, keep(product(columns(weights), columns(dout)))


def saved(q, k, v, dout, scale, *, causal=False):
    """The natural log-sum-exp of each row, and its product of output and ``dout``."""
    scores = [[x * scale for x in row] for row in product(q, k)]
    if causal:
        scores = [hidden(row, place + 1) for place, row in enumerate(scores)]
    sums = [log_sum_exp(row) for row in scores]
    out = product([softmax(row) for row in scores], columns(v))
    return sums, [sum(map(operator.mul, row, grown)) for row, grown in zip(out, dout, strict=True)]


def hidden(row, seen):
    """A row of scores, all but the first ``seen`` of them masked."""
    return [*row[:seen], *[-math.inf] * (len(row) - seen)]


def product(rows, others):
    """All dot products of a row of one with a row of the other."""
    return [[sum(map(operator.mul, row, other)) for other in others] for row in rows]


def columns(rows):
    return list(zip(*rows, strict=True))


def log_sum_exp(row):
    top = max(row)
    return top + math.log(math.fsum(math.exp(x - top) for x in row))


def softmax(row):
    top = max(row)
    powers = [math.exp(x - top) for x in row]
    total = math.fsum(powers)
    return [x / total for x in powers]


def row_gradient(weights, grown):
    delta = sum(map(operator.mul, weights, grown))
    return [p * (dp - delta) for p, dp in zip(weights, grown, strict=True)]
