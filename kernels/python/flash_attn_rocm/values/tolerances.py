"""The numerics rule: how far attention may differ from float64.  Every tolerance of attention is here.

``emulate``, the emulated suite, upstream's cases, the tests of the PyTorch implementation,
scripts/test-on-gpu and the check at first use all ask this module.  Standard library only: the pipeline has
no PyTorch, and reads this file by its path.

    out, gradients:  |found - exact| <= factor * |plain - exact| + terms * 2^-24 * largest
    log-sum-exp:     |found - exact| <= 1e-5 * max(1, |exact|) + 2^-24 * magnitude
    rounded once:    |found - exact| <= half a step of the dtype
                                        + 2^-24 * (8 + score_roundings * magnitude) * largest

``plain`` is attention by its formula, computed in the tensors' own dtype: its error is the cost of
the dtype itself; for gradients at least what rounding out costs (suite/reference_attention.py).
Errors are the largest of a whole call, as in upstream's comparisons.
"""

import math
from typing import Any, TypeAlias

Numbers: TypeAlias = Any  # tensors or numbers

# Multiples of the plain computation's largest error.  Upstream's tests of flash_attn 2.8
# (tests/test_flash_attn.py) hold outputs to 2 times and gradients to 3 times that of PyTorch in fp16 or bf16.
OUT_FACTOR = 2.0
GRADIENT_FACTOR = 3.0

# fp32 rounding changes a value by at most this share of it.  A sum of n products, whose weights add up to 1,
# may lose n times this share of the largest product; where the plain computation happens to be exact, this is
# the whole allowance.
FP32_ROUNDING = 2.0**-24

# Log-sum-exps are fp32 for every dtype, and inputs are exact.  A sum of n positive terms may lose n
# roundings, and its logarithm the same amount, absolutely: 1e-5 covers 168 keys if every rounding goes the
# same way, and some ten thousand if they go at random.  Relative where the log-sum-exp is large, absolute
# where it crosses zero, because its terms do not.  The error of its scores, sums whose terms may cancel, is
# added: one rounding of the sum of the terms' magnitudes.
LSE_RELATIVE = 1e-5

# Where only the result is rounded: half a unit in the last place, relative to the result; for fp16's
# subnormals half their spacing.
HALF_ULP = {"fp16": 2.0**-11, "bf16": 2.0**-8}
HALF_SUBNORMAL = {"fp16": 2.0**-25, "bf16": 0.0}
# Roundings of a weight, exp(score - maximum) / sum, besides those of its score: the difference, the
# exponential's argument, the exponential (1 ulp, which is 2), the reciprocal (1 ulp), and the products of
# these and of v.  As many for a gradient's weight, weight * (dP - sum of weight * dP).  That is 0 for a row
# with one visible key, where plain tensors lose nothing and fp32 only dP's rounding.  On the PyTorch
# implementation 2 were measured.
WEIGHT_ROUNDINGS = 8


def dscores_error(
    dtype: str,
    weights: Numbers,
    of_values: Numbers,
    of_out: Numbers,
    scores: Numbers,
) -> Numbers:
    """What may be lost of the gradients of scores, weight * (dP - sum of dout * out), in fp32 sums.

    ``of_values`` and ``of_out`` are the sums of the magnitudes of the terms of dP and of the other sum, which
    is of what rounding left of out.  ``scores`` are magnitudes of a score and of the log-sum-exp, both fp32,
    from whose difference a weight is recomputed: three roundings of it, and what an exponential loses.
    """
    weight = FP32_ROUNDING * (2 * WEIGHT_ROUNDINGS + 3 * scores)
    return weights * ((of_values + of_out) * weight + of_out * HALF_ULP[dtype]) + FP32_ROUNDING**2


def weights_together(total: float) -> float:
    """By how much weights that add up to ``total`` may err together, in errors of a weight of 1.

    Those of a query add up to 1.  Those of a key, in dk and dv, add up to the number of queries where all of
    them see that key only; errors of different queries have no sign in common, so that of their sum grows by
    the root.
    """
    return max(1.0, math.sqrt(total))


def score_roundings(terms: int) -> float:
    """How many roundings of its terms' magnitudes a score of so many terms may lose.

    One for what follows the sum, such as a bias.  The sum is rounded after each term: partial sums that grow
    evenly, each rounded by at most 2^-24 of itself, err by sqrt(terms) / 3 times 2^-24 of the whole (root
    mean square).  More where terms are alike, but then all keys have much the same error, and weights do not:
    scores of -6000 from 128 terms err by 22 times 2^-24 of themselves, out by 1.44 times.
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
    """The largest error that an output or gradient may have.

    ``terms`` is how many products it sums, ``largest`` bounds the magnitudes that the weights multiply.
    """
    return factor * plain_error + terms * FP32_ROUNDING * largest


def lse_allowed(exact: float, magnitude: float) -> float:
    """The largest error that a log-sum-exp may have.

    ``magnitude`` is the largest sum of the magnitudes of a score's terms, in the scores' unit.
    """
    return LSE_RELATIVE * max(1.0, abs(exact)) + FP32_ROUNDING * magnitude


def rounded_once_allowed(exact: float, dtype: str, *, magnitude: float, terms: int, largest: float) -> float:
    """The largest error of an element, for a kernel that rounds only its result to ``dtype``.

    ``terms`` of a score, and the largest sum of their magnitudes.
    """
    last_place = max(abs(exact) * HALF_ULP[dtype], HALF_SUBNORMAL[dtype])
    return last_place + FP32_ROUNDING * (WEIGHT_ROUNDINGS + score_roundings(terms) * magnitude) * largest


# Of an element of a gradient that is held to exact arithmetic by itself: its weights are truncated to the
# dtype at most twice (P, and what it is multiplied to), each time by less than two halves of a unit in the
# last place, and the sum is rounded once.  Together 5 halves, and less than 0.1 from their products.
ROUNDED_WEIGHTS = 5.1


def allowed_of_rounded_weights(dtype: str, sizes: Numbers, magnitude: float, terms: int) -> Numbers:
    """The largest errors of gradients' elements; ``sizes``, a number or a tensor, of the sums of their
    terms' magnitudes.

    ``magnitude`` is the largest sum of the magnitudes of a score's terms, of which there are ``terms``.
    """
    of_scores = FP32_ROUNDING * (WEIGHT_ROUNDINGS + score_roundings(terms) * magnitude)
    return (ROUNDED_WEIGHTS * HALF_ULP[dtype] + of_scores) * sizes + HALF_SUBNORMAL[dtype]


# What is truncated loses 0.72 halves of a unit in the last place on average, for which kernels make up
# (kCutGain).  Half of that tells those that do from those that do not, or do twice: the mean error of 100
# weights, each less than two halves of a unit, is off by 0.06 halves (standard deviation).
BIAS = 0.36


def largest_bias(dtype: str) -> float:
    """How far gradients may be too large or too small on average, as a share of them."""
    return BIAS * HALF_ULP[dtype]


# The check at first use of kernels (flash_attn_rocm/canary/calls.py) compares them with float32 in PyTorch,
# which is not rounded: a few calls, so no float64 and no plain computation.  Kernels round one factor of each
# product once (probabilities, or gradients of scores) and their results once; one more for scores.  Each
# changes a result by at most half a unit of the largest: on random tensors the products of a sum, and so
# their errors, have random signs.  tests/installed/fake_hip/test_canary.py says how much of this kernels use.
CANARY_ROUNDINGS = 3
# Log-sum-exps are sums in fp32, of scores below 16; those of larger ones err relatively, as above.
CANARY_LSE = 2.0**-12


def canary_lse_allowed(largest: float) -> float:
    """The largest difference of a log-sum-exp; ``largest`` of them."""
    return CANARY_LSE + LSE_RELATIVE * largest


def canary_allowed(dtype: str, largest: float) -> float:
    """The largest difference of out or a gradient; ``largest`` of it."""
    return CANARY_ROUNDINGS * HALF_ULP[dtype] * largest


def canary_cancelled(terms: int, *largest: float) -> float:
    """What may be left of a gradient where two sums of ``terms`` products cancel, as where a row has one key.

    Each sum in fp32 errs by at most ``terms`` roundings of its largest product; ``largest`` of each factor.
    """
    return 2 * terms * FP32_ROUNDING * math.prod(largest)
