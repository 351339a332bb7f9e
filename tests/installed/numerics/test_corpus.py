"""The corpus: fuzz cases picked by tests/tools/corpus.py for their executed instructions."""

import pytest
import torch
from flash_attn_rocm.suite.alike_cases import THRICE
from flash_attn_rocm.suite.backward_cases import ALIKE
from flash_attn_rocm.suite.corpus import corpus_of
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.fuzz import draw, kernels, made, served
from flash_attn_rocm.suite.target import BACKWARD_OP, Shown
from here import ARCH, BACKWARD, LARGE_BACKWARD


@pytest.mark.parametrize(("kernel", "number"), corpus_of(ARCH), ids=str)
def test_case(target, shown, kernel, number):
    made(draw(kernel, number), target.device).check(target, shown)
    assert target.runtime is None or str(kernel) in target.kernels


def test_scores_of_6000_from_128_terms_that_are_alike(target, shown):
    """Call 154's limit was one rounding of each score. No sum of fp32 meets it (rule.score_roundings)."""
    test_case(target, shown, Kernel("reference", "fp16"), 154)


@pytest.mark.needs(LARGE_BACKWARD)
def test_258_queries_of_which_each_sees_one_key(target, shown):
    """Call 62's limit was the fp32 rounding of one query's dk (rule.weights_together)."""
    test_case(target, shown, Kernel("bwd_dq", "fp16", 192), 62)


@pytest.mark.needs(BACKWARD)
@pytest.mark.parametrize(
    ("dtype", "head_dim", "number"),
    [
        pytest.param("bf16", 192, 35, marks=pytest.mark.needs(LARGE_BACKWARD)),
        pytest.param("fp16", 256, 47, marks=pytest.mark.needs(LARGE_BACKWARD)),
        ("bf16", 64, 62),
    ],
)
def test_dk_whose_terms_are_truncated_twice(target, shown, dtype, head_dim, number):
    """Kernels corrected one of the two truncations only: errors were 1.02 to 1.07 times the limit."""
    test_case(target, shown, Kernel(BACKWARD_OP, dtype, head_dim), number)


OF_QUERY, OF_KEY, OF_ROW = range(3)  # the element unique to query, key or row 9
DQ, DK, DV = range(3)


@pytest.mark.needs(BACKWARD)
@pytest.mark.parametrize(
    ("gradient", "own"), [(DQ, OF_KEY), (DQ, OF_QUERY), (DK, OF_QUERY), (DK, OF_KEY), (DV, OF_ROW)]
)
def test_one_bit_of_one_element_is_seen(target, gradient, own):
    """Among equal elements, or zeros. dq has zeros where queries have unique elements."""
    call = made(draw(Kernel(BACKWARD_OP, *BACKWARD[0]), ALIKE), target.device)
    results = call.run(target)
    call.run = lambda _: results
    call.check(target, Shown())
    element = owned(call, own).nonzero()[0].item()
    head = -1 if gradient == DQ else 0  # the last head has equal keys, the first equal queries
    results[gradient].view(torch.int16)[0, 7, head, element] += 1
    with pytest.raises(AssertionError, match="elements whose terms are alike differ"):
        call.check(target, Shown())


def owned(call, own):
    """The scale of the elements unique to query, key or row 9."""
    firsts = (call.shared, call.shared + call.width)
    return call.turned(call.own_of_dout(10) if own == OF_ROW else call.own(10, firsts[own]))[9]


@pytest.mark.needs(BACKWARD)
def test_a_gradient_that_is_not_three_times_another_is_seen(target):
    """Also if all equal elements are equally wrong, as after wrong rounding of ties."""
    call = made(draw(Kernel(BACKWARD_OP, *BACKWARD[0]), ALIKE), target.device)
    results = call.run(target)
    call.run = lambda _: results
    element = (owned(call, OF_QUERY) == THRICE).nonzero()[0].item()
    terms = call.terms(0)[DK]
    results[DK].view(torch.int16)[0][terms == terms[7, 0, element]] += 1
    with pytest.raises(AssertionError, match="which is not rounded to nearest"):
        call.check(target, Shown())


@pytest.mark.parametrize("kernel", kernels(), ids=str)
def test_a_kernel_meets_every_feature_that_it_serves(kernel):
    cases = [draw(each, number) for each, number in corpus_of(ARCH) if each == kernel]
    met = frozenset().union(*(case.features for case in cases))
    assert served(kernel) <= met, "generate more, and a new corpus: python -m tests.tools.corpus"
