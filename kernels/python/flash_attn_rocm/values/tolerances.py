"""The numerics rule: how far attention may differ from float64. Every tolerance of attention is here.

Users: ``emulate``, the emulated suite, upstream's cases, the tests of the PyTorch implementation,
scripts/test-on-gpu and the check at first use. Standard library only: the pipeline lacks PyTorch, and reads
this file by its path.

    out, gradients:  |found - exact| <= factor * |plain - exact| + terms * 2^-24 * largest
    log-sum-exp:     |found - exact| <= 1e-5 * max(1, |exact|) + 2^-24 * magnitude
    rounded once:    |found - exact| <= half a step of the dtype
                                        + 2^-24 * (8 + score_roundings * magnitude) * largest

``plain`` is attention by its formula, computed in the tensors' own dtype: its error is the cost of the dtype
itself. For gradients it is at least the cost of rounding out (suite/reference_attention.py). Errors are the
largest of a whole call, as in upstream's comparisons.
"""

import math
from typing import Any, TypeAlias

Numbers: TypeAlias = Any  # tensors or numbers

# Multiples of the plain computation's largest error. Upstream's tests of flash_attn 2.8
# (tests/test_flash_attn.py) allow outputs 2 times and gradients 3 times the error of PyTorch in fp16 or bf16.
OUT_FACTOR = 2.0
GRADIENT_FACTOR = 3.0

# fp32 rounding changes a value by at most this share of it. A sum of n products, with weights that add up to
# 1, may lose n times this share of the largest product. This is the whole allowance if the plain computation
# happens to be exact.
FP32_ROUNDING = 2.0**-24

# Log-sum-exps are fp32 for every dtype, and inputs are exact. A sum of n positive terms may lose n roundings,
# and its logarithm loses the same amount, absolutely: 1e-5 covers 168 keys if all roundings have one sign,
# and some ten thousand with random signs. The limit is relative for large log-sum-exps. It is absolute around
# zero, because the terms stay large there. The error of the scores is added, as their terms may cancel: one
# rounding of the sum of the terms' magnitudes.
LSE_RELATIVE = 1e-5

# For results rounded once: half a unit in the last place, relative to the result. For fp16's subnormals half
# their spacing.
HALF_ULP = {"fp16": 2.0**-11, "bf16": 2.0**-8}
HALF_SUBNORMAL = {"fp16": 2.0**-25, "bf16": 0.0}
# Of probabilities in e4m3fn: of normal numbers, relatively, and of subnormal ones. In e4m3fnuz these have
# half the step.
FP8_HALF_ULP, FP8_HALF_STEP = 2.0**-4, 2.0**-10
# Of a score, relative to the magnitudes of its terms: fp32 sums of products of codes, which are exact, and
# two descales.
FP8_SCORE = 2 * FP32_ROUNDING
# Of a score of int8 codes: exact sums, two scales and softmax_scale with log2(e). And in units of the score
# of two codes of 1: the product of its scale and 1.5 * 2^23, rounded, which the kernel subtracts.
INT8_SCORE, INT8_QUANTUM = 4 * FP32_ROUNDING, 12582912 * FP32_ROUNDING
# Roundings of a weight, exp(score - maximum) / sum, after its score: the difference, the exponential's
# argument, the exponential (1 ulp, so 2), the reciprocal (1 ulp), and the products of these and of v. A
# gradient's weight, weight * (dP - sum of weight * dP), has as many. It is 0 for a row with one visible key,
# where plain tensors are exact and fp32 loses only dP's rounding. The PyTorch implementation measured 2.
WEIGHT_ROUNDINGS = 8


def dscores_error(
    dtype: str,
    weights: Numbers,
    of_values: Numbers,
    of_out: Numbers,
    scores: Numbers,
) -> Numbers:
    """The possible error of the scores' gradients, weight * (dP - sum of dout * out), in fp32 sums.

    ``of_values`` and ``of_out`` are the sums of the magnitudes of the terms of dP and of the other sum. The
    latter covers out's rounding error. ``scores`` are magnitudes of a score and of the log-sum-exp, both
    fp32. Their difference gives the weight again: three roundings of it, and the exponential's error.
    """
    weight = FP32_ROUNDING * (2 * WEIGHT_ROUNDINGS + 3 * scores)
    return weights * ((of_values + of_out) * weight + of_out * HALF_ULP[dtype]) + FP32_ROUNDING**2


def weights_together(total: float) -> float:
    """The joint error of weights that add up to ``total``, in errors of a weight of 1.

    The weights of a query add up to 1. The weights of a key, in dk and dv, add up to the number of queries if
    all of them see that key only. Errors of different queries have independent signs, so their sum grows by
    the root.
    """
    return max(1.0, math.sqrt(total))


def score_roundings(terms: int) -> float:
    """How many roundings of its terms' magnitudes a score of ``terms`` terms may lose.

    One is for a step after the sum, such as a bias. The sum is rounded after each term: partial sums that
    grow evenly, each rounded by at most 2^-24 of itself, err by sqrt(terms) / 3 times 2^-24 of the whole
    (root mean square). Similar terms err more, but then all keys have nearly equal errors, and weights hardly
    err: scores of -6000 from 128 terms err by 22 times 2^-24 of themselves, out by 1.44 times.
    """
    return 1 + math.sqrt(terms) / 3


def least_error(plain_error: float, dtype: str, largest: float) -> float:
    """The least error credited to the plain computation, for results whose largest is ``largest``.

    A few results may all happen to round well, so it counts as at least half a unit in the last place of the
    largest.
    """
    return (
        max(plain_error, HALF_ULP[dtype] * 2.0 ** math.floor(math.log2(largest))) if largest else plain_error
    )


def allowed(plain_error: float, *, terms: int, largest: float, factor: float = OUT_FACTOR) -> float:
    """The largest allowed error of an output or gradient.

    ``terms`` is its number of products, ``largest`` bounds the magnitudes that the weights multiply.
    """
    return factor * plain_error + terms * FP32_ROUNDING * largest


def lse_allowed(exact: float, magnitude: float) -> float:
    """The largest allowed error of a log-sum-exp.

    ``magnitude`` is the largest sum of the magnitudes of a score's terms, in the scores' unit.
    """
    return LSE_RELATIVE * max(1.0, abs(exact)) + FP32_ROUNDING * magnitude


def rounded_once_allowed(exact: float, dtype: str, *, magnitude: float, terms: int, largest: float) -> float:
    """The largest allowed error of an element, for a kernel that rounds only its result to ``dtype``.

    ``terms`` is the number of a score's terms, ``magnitude`` the largest sum of their magnitudes.
    """
    last_place = max(abs(exact) * HALF_ULP[dtype], HALF_SUBNORMAL[dtype])
    return last_place + FP32_ROUNDING * (WEIGHT_ROUNDINGS + score_roundings(terms) * magnitude) * largest


# For an element of a gradient compared with exact arithmetic on its own. Its weights are truncated to the
# dtype at most twice (P, and its later product), each time by less than two halves of a unit in the last
# place, and the sum is rounded once. Together 5 halves, and less than 0.1 from their products.
GRADIENT_HALVES = 5.1
OUT_HALVES = 3.1  # likewise of an element of out, whose weights are truncated once


def allowed_of_rounded_weights(dtype: str, sizes: Numbers, magnitude: float, terms: int) -> Numbers:
    """The largest allowed errors of gradients' elements.

    ``sizes``, a number or a tensor, are the sums of their terms' magnitudes. ``magnitude`` is the largest sum
    of the magnitudes of a score's ``terms`` terms.
    """
    of_scores = FP32_ROUNDING * (WEIGHT_ROUNDINGS + score_roundings(terms) * magnitude)
    return (GRADIENT_HALVES * HALF_ULP[dtype] + of_scores) * sizes + HALF_SUBNORMAL[dtype]


# Truncation loses 0.72 halves of a unit in the last place on average. Kernels compensate for it (kCutGain).
# Half of that separates correct kernels from kernels that compensate zero times or twice: the mean error of
# 100 weights, each less than two halves of a unit, has a standard deviation of 0.06 halves.
BIAS = 0.36


def largest_bias(dtype: str) -> float:
    """How far gradients may be too large or too small on average, as a share of them."""
    return BIAS * HALF_ULP[dtype]


# The check at first use of kernels (flash_attn_rocm/canary/calls.py) compares them with float32 in PyTorch,
# without roundings to the dtype. It makes a few calls only, so it uses neither float64 nor the plain
# computation. Kernels round one factor of each product once (probabilities, or gradients of scores) and their
# results once. One more is for scores. Each changes a result by at most half a unit of the largest: on random
# tensors the products of a sum, and so their errors, have random signs.
# tests/installed/fake_hip/test_canary.py measures the share that kernels use.
CANARY_ROUNDINGS = 3
# Log-sum-exps are fp32 sums of scores below 16. Larger ones err relatively, as above.
CANARY_LSE = 2.0**-12


def canary_lse_allowed(largest: float) -> float:
    """The largest allowed difference of a log-sum-exp. ``largest`` is the largest log-sum-exp."""
    return CANARY_LSE + LSE_RELATIVE * largest


def canary_allowed(dtype: str, largest: float) -> float:
    """The largest allowed difference of out or a gradient. ``largest`` is its largest element."""
    return CANARY_ROUNDINGS * HALF_ULP[dtype] * largest


def fp8_allowed(weighted: Numbers, keys: int, largest: float, subnormal: float) -> Numbers:
    """The largest difference of out from that of exact probabilities, where they are rounded to fp8.

    ``weighted``: out of the magnitudes of v, of which ``largest`` is the largest. A probability's mantissa
    has 3 bits. Where it is subnormal, it errs by ``subnormal`` beside its row's largest. Then out is rounded
    to bf16.
    """
    return weighted * (FP8_HALF_ULP + HALF_ULP["bf16"]) + keys * subnormal * largest


def fp16_allowed(weighted: Numbers, keys: int, largest: float) -> Numbers:
    """Likewise, where probabilities are truncated to fp16.

    A truncated one errs by less than two halves of a unit in the last place. Beside its row's largest, which
    is at least 1, a subnormal one errs by less than two halves of its unit.
    """
    subnormal = 2 * HALF_SUBNORMAL["fp16"]
    return weighted * (OUT_HALVES * HALF_ULP["fp16"]) + (keys * largest + 1) * subnormal


def fp8_subnormal(top: float, *, fnuz: bool) -> float:
    """The error of a subnormal probability beside its row's largest, which is at least ``top`` as a code."""
    return (FP8_HALF_STEP / 2 if fnuz else FP8_HALF_STEP) / top


def canary_cancelled(terms: int, *largest: float) -> float:
    """The allowed rest of a gradient where two sums of ``terms`` products cancel: a row with one key.

    Each fp32 sum errs by at most ``terms`` roundings of its largest product. ``largest`` holds each factor's
    largest.
    """
    return 2 * terms * FP32_ROUNDING * math.prod(largest)
