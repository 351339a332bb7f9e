"""Calls that were drawn at random and chosen by what they execute (see drawn.py and choose.py)."""

import pytest
from candidates import kernels
from chosen import chosen
from conftest import ARCH
from drawn import Call, draw, served
from rule import judge


def check(target, shown, case):
    call = Call(case, target.device)
    sequences = call.run(target)
    kernel = str(case.kernel)
    assert target.fake_hip is None or target.kernels[0] == kernel
    judge(shown, kernel, repr(case), sequences, call.rules)


@pytest.mark.parametrize(("kernel", "number"), chosen(ARCH), ids=str)
def test_drawn(target, shown, kernel, number):
    check(target, shown, draw(kernel, number))


@pytest.mark.parametrize("kernel", kernels(), ids=str)
def test_a_kernel_meets_every_feature_that_it_serves(kernel):
    cases = [draw(each, number) for each, number in chosen(ARCH) if each == kernel]
    met = frozenset().union(*(case.features for case in cases))
    assert served(kernel) <= met, "draw more and choose again: python -m tests.choose"
