"""Attention and its gradients in plain Python, for one sequence and head: in float64, and rounded to the
tensors' type wherever PyTorch's operations store a tensor."""

import math
from dataclasses import dataclass

from wheel_builder.machine_code.emulator.formats import rounded
from wheel_builder.machine_code.emulator.reference import dot

WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Options:
    """``slope`` is ALiBi's. ``kept(row, key)`` is dropout's factor for a probability."""

    scale: float
    left: int = -1
    right: int = -1
    softcap: float = 0.0
    slope: float = 0.0
    kept: object = None

    def sees(self, ahead):
        """Whether a key ``ahead`` of the diagonal is visible."""
        return (self.left < 0 or ahead >= -self.left) and (self.right < 0 or ahead <= self.right)


def gradients(q, k, v, dout, options, dtype=""):
    """out, log-sum-exps, dq, dk and dv, all lists of rows. With a ``dtype`` they are rounded to it."""

    def keep(values):
        return list(rounded(values, dtype)) if dtype else list(values)

    out, lse, dq = [], [], []
    probabilities, of_scores = [], []
    columns_of_v, columns_of_k = list(zip(*v, strict=True)), list(zip(*k, strict=True))
    for row, (query, gradient) in enumerate(zip(q, dout, strict=True)):
        ahead = [key - row - (len(k) - len(q)) for key in range(len(k))]
        scores, derivatives = _scores(query, k, ahead, options, keep)
        p, row_lse = _softmax(scores, keep)
        factors = [options.kept(row, key) if options.kept else 1.0 for key in range(len(k))]
        dropped = keep([a * b for a, b in zip(p, factors, strict=True)])
        dp = keep([a * b for a, b in zip(keep([dot(gradient, each) for each in v]), factors, strict=True)])
        delta = dot(p, dp)
        ds = keep([a * (b - delta) for a, b in zip(p, dp, strict=True)])
        ds = keep([a * b * options.scale for a, b in zip(ds, derivatives, strict=True)])
        out.append(keep([dot(dropped, column) for column in columns_of_v]) if k else [0.0] * len(query))
        dq.append(keep([dot(ds, column) for column in columns_of_k]) if k else [0.0] * len(query))
        lse.append(row_lse)
        probabilities.append(dropped)
        of_scores.append(ds)
    dk = _turned_product(of_scores, q, len(k), keep)
    dv = _turned_product(probabilities, dout, len(k), keep)
    return out, lse, dq, dk, dv


def _scores(query, keys, ahead, options, keep):
    """Scores, -inf where hidden, and the derivative of each by the input of softcap."""
    scores = keep([x * options.scale for x in keep([dot(query, key) for key in keys])])
    derivatives = [1.0] * len(scores)
    if options.softcap:
        t = keep([math.tanh(x / options.softcap) for x in scores])
        scores, derivatives = keep([options.softcap * x for x in t]), [1.0 - x * x for x in t]
    scores = [x - options.slope * abs(a) for x, a in zip(scores, ahead, strict=True)]
    return [x if options.sees(a) else -math.inf for x, a in zip(scores, ahead, strict=True)], derivatives


def _softmax(scores, keep):
    top = max(scores, default=-math.inf)
    if top == -math.inf:
        return [0.0] * len(scores), math.inf
    powers = [math.exp(x - top) for x in scores]
    total = math.fsum(powers)
    return keep([x / total for x in powers]), top + math.log(total)


def _turned_product(weights, rows, count, keep):
    """Row j is the sum over i of weights[i][j] * rows[i]."""
    if not rows:
        return None
    columns = list(zip(*rows, strict=True))
    turned = list(zip(*weights, strict=True)) if count else []
    return [keep([dot(weight, column) for column in columns]) for weight in turned]


def philox(counter, key):
    """The four words of Philox4x32-10."""
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        even, odd = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (odd >> 32) ^ b ^ low, odd & WORD, (even >> 32) ^ d ^ high, even & WORD
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return a, b, c, d
