"""Tests divided among archs with the same fuzz cases: together they run all, and each arch runs some."""

import runpy
from collections import Counter

import pytest

from tests.conftest import CHECKOUT

SHARES = runpy.run_path(str(CHECKOUT / "tests/installed/numerics/shares.py"))


class Item:
    """A collected test of a function, marked or not."""

    def __init__(self, function, number, *, divided=True):
        self.function, self.number, self.divided = function, number, divided

    def get_closest_marker(self, name):
        return self.divided if name == "divided" else None


@pytest.mark.parametrize("shares", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 3, 24, 324])
def test_together_they_run_every_test(count, shares):
    parts = [SHARES["share_of"](range(count), place, shares) for place in range(shares)]
    assert all(parts)
    ran = Counter(number for part in parts for number in part)
    assert set(ran) == set(range(count))
    assert count < shares or set(ran.values()) == {1}


def test_each_share_has_some_of_each_kind():
    """12 kernels with 27 cases each, sorted by kernel or by case."""
    for place in range(3):
        part = SHARES["share_of"](range(324), place, 3)
        assert min(Counter(number % 12 for number in part).values()) >= 3
        assert min(Counter(number // 27 for number in part).values()) >= 3


def test_only_marked_tests_are_divided_each_function_by_itself():
    one, other = object(), object()
    items = [Item(f, n, divided=f is one) for f in (one, other) for n in range(6)]
    left = SHARES["without_others"](items, 1, 3)
    assert [item.number for item in left if item.function is one] == SHARES["share_of"](range(6), 1, 3)
    assert [item.number for item in left if item.function is other] == [*range(6)]


def test_an_arch_that_shares_with_none_runs_all():
    items = [Item(test_each_share_has_some_of_each_kind, number) for number in range(5)]
    assert SHARES["without_others"](items, 0, 1) == items
