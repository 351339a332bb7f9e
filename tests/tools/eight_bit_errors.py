"""Errors of attention in 8 bits, simulated step by step: where the tolerances of tests come from.

    python -m tests.tools.eight_bit_errors

prints the table of docs/dev/kernels-forward.md: root mean squares in thousandths of that of out, against
float64. Equal in every run.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]
ROWS, KEYS, HEAD_DIM = 16, 1024, 128
HEADS, DRAWS = 4, 4  # of a call, and calls
NORMAL, OUTLIERS, CHANNELS, SINKS = KINDS = ("normal", "outliers", "channels", "sinks")
KEYS_OF_SCALE, INT8_MOST = 32, 127.0
SIGNS = 0x13198A2E03707344243F6A8885A308D3  # kSigns of kernels/device/cache/quantise.hpp


class Float(NamedTuple):
    """A format: bits of its mantissa, the exponent of its least normal number, its largest number."""

    bits: int
    least: int
    most: float


E4M3FN, E4M3FNUZ, FP16, BF16 = (
    Float(3, -6, 448.0), Float(3, -7, 240.0), Float(10, -14, 65504.0), Float(7, -126, 3e38),
)  # fmt: skip


def rounded(x: Numbers, to: Float, how: Callable[[Numbers], Numbers] = np.rint) -> Numbers:
    """The nearest numbers of a format, or by ``how`` others."""
    exponents = np.maximum(np.frexp(x)[1] - 1, to.least)
    step = np.ldexp(1.0, exponents - to.bits)
    found: Numbers = np.clip(how(x / step) * step, -to.most, to.most)
    return found


class Inputs(NamedTuple):
    """Of one head."""

    q: Numbers
    k: Numbers
    v: Numbers


def inputs(kind: str, seed: int, rows: int = ROWS, keys: int = KEYS, head_dim: int = HEAD_DIM) -> Inputs:
    """As tests make them.

    outliers: a few channels of k far from 0, and all of v. channels: these channels of v only. sinks: a first
    key that takes most of each row.
    """
    draw = np.random.default_rng(seed)
    q, k, v = (draw.standard_normal((n, head_dim)) for n in (rows, keys, keys))
    if kind in {OUTLIERS, CHANNELS}:
        k[:, 5::32] += 9
        v[:, 5 if kind == CHANNELS else 0 :: 32 if kind == CHANNELS else 1] += 2
    if kind == SINKS:
        q += 1
        k[0], v[0] = 0.7, v[0] / 64
    return Inputs(q, k, v)


class Method(NamedTuple):
    """How attention is computed: what is rounded."""

    scores: Callable[[Inputs], Inputs]  # q and k as their products see them
    values: Callable[[Numbers], Numbers]
    weights: Callable[[Numbers], Numbers]  # of weights relative to the largest of their row
    out: Float | None


def exactly(x: Numbers) -> Numbers:
    return x


def as_given(given: Inputs) -> Inputs:
    return given


def counted(x: Numbers, largest: Numbers) -> Numbers:
    scale = largest / INT8_MOST
    found: Numbers = np.rint(x / scale) * scale
    return found


def rotated(x: Numbers) -> Numbers:
    """Rows, with signs changed, times the Hadamard matrix."""
    head_dim = x.shape[1]
    x = x * [1.0 - 2.0 * (SIGNS >> n & 1) for n in range(head_dim)]
    apart = 1
    while apart < head_dim:
        a, b = np.moveaxis(x.reshape(len(x), -1, 2, apart), 2, 0)
        x = np.stack((a + b, a - b), 2).reshape(len(x), head_dim)
        apart *= 2
    return x * head_dim**-0.5


def counted_scores(given: Inputs, *, turned: bool = True) -> Inputs:
    """int8: q with a scale for each row, k for each 32 keys. Rotated, so that outliers are shared."""
    q, k = (rotated(x) if turned else x for x in given[:2])
    of_keys = np.abs(k).reshape(-1, KEYS_OF_SCALE * k.shape[1]).max(1).repeat(KEYS_OF_SCALE)[:, None]
    return Inputs(counted(q, np.abs(q).max(1, keepdims=True)), counted(k, of_keys), given.v)


def coded_values(v: Numbers) -> Numbers:
    scale = np.abs(v).max() / E4M3FN.most
    return rounded(v / scale, E4M3FN) * scale


def in_fp8(factor: float, to: Float = E4M3FN) -> Callable[[Numbers], Numbers]:
    """Weights times ``factor`` in fp8."""
    return lambda weights: rounded(weights * factor, to) / factor


def in_fp16(weights: Numbers) -> Numbers:
    return rounded(weights, FP16, np.trunc)


def in_u8(weights: Numbers) -> Numbers:
    found: Numbers = np.rint(weights * 255) / 255
    return found


FP8, FNUZ, SAGE, SAGE_BF16, SCORES = (
    "fp8, P times 256", "fp8, P times 128 in e4m3fnuz", "int8 scores, v in fp8, P times 256",
    "likewise, out in bf16", "int8 scores, v and P in fp16",
)  # fmt: skip
METHODS = {
    FP8: Method(as_given, exactly, in_fp8(256), BF16),
    FNUZ: Method(as_given, exactly, in_fp8(128, E4M3FNUZ), BF16),
    SAGE: Method(counted_scores, coded_values, in_fp8(256), FP16),
    SAGE_BF16: Method(counted_scores, coded_values, in_fp8(256), BF16),
    SCORES: Method(counted_scores, exactly, in_fp16, FP16),
}
# What kernels must not do.
AS_IT_IS, IN_U8, NOT_ROTATED = "fp8, P as it is", "int8 scores, P in u8", "int8 scores without rotation"
WRONG = {
    AS_IT_IS: Method(as_given, exactly, in_fp8(1), BF16),
    IN_U8: Method(counted_scores, exactly, in_u8, FP16),
    NOT_ROTATED: Method(lambda given: counted_scores(given, turned=False), exactly, in_fp16, FP16),
}


def product(how: str, a: Numbers, b: Numbers) -> Numbers:
    """In one thread: those of BLAS wait for each other where other programs run."""
    found: Numbers = np.einsum(how, a, b, optimize=False)
    return found


def scores_of(given: Inputs) -> Numbers:
    return product("id,jd->ij", given.q, given.k) * given.q.shape[1] ** -0.5


def attended(given: Inputs, methods: dict[str, Method]) -> dict[str, Numbers]:
    """out of one head by each method. Sums are exact: kernels have them in fp32."""
    scores = {how: scores_of(how(given)) for how in {each.scores for each in methods.values()}}
    values = {how: how(given.v) for how in {each.values for each in methods.values()}}
    found = {}
    for name, method in methods.items():
        of_rows = scores[method.scores]
        weights = np.exp(of_rows - of_rows.max(1, keepdims=True))
        out = product("ij,jd->id", method.weights(weights), values[method.values])
        out /= weights.sum(1, keepdims=True)
        found[name] = out if method.out is None else rounded(out, method.out)
    return found


EXACT = "exact"
EVERY = {EXACT: Method(as_given, exactly, exactly, None)} | METHODS | WRONG


def calls(
    kind: str, rows: int = ROWS, keys: int = KEYS, head_dim: int = HEAD_DIM
) -> Iterator[dict[str, Numbers]]:
    """out (heads, rows, head_dim) of DRAWS calls by each method."""
    for call in range(DRAWS):
        seeds = range(HEADS * call, HEADS * (call + 1))
        heads = [attended(inputs(kind, seed, rows, keys, head_dim), EVERY) for seed in seeds]
        yield {name: np.stack([head[name] for head in heads]) for name in EVERY}


def root_mean_squares(kind: str) -> dict[str, list[float]]:
    """Of the errors of each call, as a share of that of out, for each method."""
    outs = [*calls(kind)]
    return {name: [size(each[name] - each[EXACT]) / size(each[EXACT]) for each in outs] for name in EVERY}


def size(x: Numbers) -> float:
    return float(np.square(x).mean() ** 0.5)


def largest(rows: int, keys: int, head_dim: int) -> dict[str, float]:
    """The largest error of calls with normal numbers, as a share of the largest element of their out."""
    outs = [*calls(NORMAL, rows, keys, head_dim)]
    return {
        name: max(float(np.abs(each[name] - each[EXACT]).max() / np.abs(each[EXACT]).max()) for each in outs)
        for name in EVERY
    }


def shown(errors: list[float]) -> str:
    """Least and largest, in thousandths."""
    least, most = (f"{1000 * x:.{2 if x < 0.1 else 3}g}" for x in (min(errors), max(errors)))
    return least if least == most else f"{least} to {most}"


def table(of_kind: Callable[[str], dict[str, list[float]]] = root_mean_squares) -> list[str]:
    """The table as Markdown. Errors in thousandths."""
    errors = [of_kind(kind) for kind in KINDS]
    lines = [f"| method | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    lines += [f"| {name} | {' | '.join(shown(each[name]) for each in errors)} |" for name in METHODS | WRONG]
    return lines


if __name__ == "__main__":
    print("\n".join(table()))  # noqa: T201
