"""Holds kernels to the numerics rule (tests/textbook.py), and keeps what was found for the record."""

from textbook import DTYPES, Rules, Sequence
from textbook import judge as verdict_on

from wheel_builder.emulator.rule import LSE_RELATIVE

__all__ = ["DTYPES", "Rules", "Sequence", "judge"]


def judge(shown, instance, case, sequences, rules):
    """Hold all sequences of one call to the rule."""
    # The reference kernels keep probabilities in fp32 and round only out.
    verdict = verdict_on(sequences, rules, rounded_once=instance.startswith("fa_reference_"))
    shown.compared(instance, case, verdict.error, verdict.allowed)
    shown.compared_lse(instance, verdict.lse_share * LSE_RELATIVE)
    assert not verdict.wrong, "; ".join(verdict.wrong)
