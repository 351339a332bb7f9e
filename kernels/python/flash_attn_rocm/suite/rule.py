"""Compares kernels with the reference (reference_attention.py) and records the results.

MI200's matrix unit takes denormals of fp16 as zero. Kernels keep their own values above them, but not those
of q, k and v. So there the reference is computed from the inputs as the unit takes them, with the same
tolerances.
"""

from dataclasses import replace

import torch

from flash_attn_rocm.suite.reference_attention import (
    DTYPES,
    Rules,
    Sequence,
    attention,
    magnitude,
)
from flash_attn_rocm.suite.reference_attention import dscores_allowed as dscores_allowed_of
from flash_attn_rocm.suite.reference_attention import judge as verdict_on
from flash_attn_rocm.suite.reference_attention import judge_gradients as verdicts_on
from flash_attn_rocm.suite.target import arch
from flash_attn_rocm.values.rates import FLUSHING
from flash_attn_rocm.values.tolerances import (
    FP32_ROUNDING,
    LSE_RELATIVE,
    allowed_of_rounded_weights,
    largest_bias,
)

__all__ = [
    "DTYPES", "FP32_ROUNDING", "Rules", "Sequence", "allowed_of_rounded_weights", "as_taken", "attention",
    "dscores_allowed", "found_gradients", "judge", "judge_gradients", "largest_bias", "magnitude",
]  # fmt: skip


def as_taken(sequence):
    """A sequence with q, k and v as the matrix unit of this arch takes them."""
    return replace(sequence, **{name: taken(getattr(sequence, name)) for name in "qkv"})


def taken(x):
    return x.masked_fill(x.abs() < torch.finfo(x.dtype).tiny, 0) if arch() in FLUSHING else x


def judge(shown, instance, case, sequences, rules):
    """Compare all sequences of one call with float64."""
    # The reference kernels multiply in fp32 and round only out.
    in_fp32 = instance.startswith("fa_reference_")
    verdict = verdict_on(sequences if in_fp32 else map(as_taken, sequences), rules, rounded_once=in_fp32)
    shown.compared(instance, case, verdict.error, verdict.allowed)
    shown.compared_lse(instance, verdict.lse_share * LSE_RELATIVE)
    assert not verdict.wrong, "; ".join(verdict.wrong)


def judge_gradients(shown, instances, case, sequences, rules):
    """Compare dq, dk and dv of one call with float64. ``instances`` maps each to its kernel."""
    cases = [(as_taken(each), *rest) for each, *rest in sequences]
    found_gradients(shown, instances, case, verdicts_on(cases, rules))


def dscores_allowed(sequence, *given):
    """The gradients of the scores and the allowed error of each."""
    return dscores_allowed_of(as_taken(sequence), *given)


def found_gradients(shown, instances, case, verdicts):
    """Record the verdicts on dq, dk and dv, or raise AssertionError if any fails."""
    for name, verdict in verdicts.items():
        shown.compared(instances[name], f"{name} {case}", verdict.error, verdict.allowed)
    wrong = [text for verdict in verdicts.values() for text in verdict.wrong]
    assert not wrong, "; ".join(wrong)
