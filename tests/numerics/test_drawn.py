"""Calls that were drawn at random and chosen by what they execute (see drawn.py and choose.py)."""

import pytest
from chosen import chosen
from drawing import draw, kernels, made, served
from drawn import Kernel
from target import ARCH


@pytest.mark.parametrize(("kernel", "number"), chosen(ARCH), ids=str)
def test_drawn(target, shown, kernel, number):
    made(draw(kernel, number), target.device).check(target, shown)
    assert target.fake_hip is None or str(kernel) in target.kernels


def test_scores_of_6000_from_128_terms_that_are_alike(target, shown):
    """Call 154 was held to one rounding of each score, which no sum of fp32 keeps (rule.score_roundings)."""
    test_drawn(target, shown, Kernel("reference", "fp16"), 154)


@pytest.mark.parametrize("kernel", kernels(), ids=str)
def test_a_kernel_meets_every_feature_that_it_serves(kernel):
    cases = [draw(each, number) for each, number in chosen(ARCH) if each == kernel]
    met = frozenset().union(*(case.features for case in cases))
    assert served(kernel) <= met, "draw more and choose again: python -m tests.choose"
