"""Compares kernels with the reference (reference_attention.py) and records the results."""

from flash_attn_rocm.suite.reference_attention import (
    DTYPES,
    Rules,
    Sequence,
    attention,
    dscores_allowed,
    magnitude,
)
from flash_attn_rocm.suite.reference_attention import judge as verdict_on
from flash_attn_rocm.suite.reference_attention import judge_gradients as verdicts_on
from flash_attn_rocm.values.tolerances import (
    FP32_ROUNDING,
    LSE_RELATIVE,
    allowed_of_rounded_weights,
    largest_bias,
)

__all__ = [
    "DTYPES", "FP32_ROUNDING", "Rules", "Sequence", "allowed_of_rounded_weights", "attention",
    "dscores_allowed", "found_gradients", "judge", "judge_gradients", "largest_bias", "magnitude",
]  # fmt: skip


def judge(shown, instance, case, sequences, rules):
    """Compare all sequences of one call with float64."""
    # The reference kernels keep probabilities in fp32 and round only out.
    verdict = verdict_on(sequences, rules, rounded_once=instance.startswith("fa_reference_"))
    shown.compared(instance, case, verdict.error, verdict.allowed)
    shown.compared_lse(instance, verdict.lse_share * LSE_RELATIVE)
    assert not verdict.wrong, "; ".join(verdict.wrong)


def judge_gradients(shown, instances, case, sequences, rules):
    """Compare dq, dk and dv of one call with float64. ``instances`` maps each to its kernel."""
    found_gradients(shown, instances, case, verdicts_on(sequences, rules))


def found_gradients(shown, instances, case, verdicts):
    """Record the verdicts on dq, dk and dv, or raise AssertionError if any fails."""
    for name, verdict in verdicts.items():
        shown.compared(instances[name], f"{name} {case}", verdict.error, verdict.allowed)
    wrong = [text for verdict in verdicts.values() for text in verdict.wrong]
    assert not wrong, "; ".join(wrong)
