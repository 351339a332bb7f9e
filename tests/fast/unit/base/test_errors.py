"""Failures: their texts and exit codes."""

import inspect
import pickle

import pytest

from wheel_builder.base import errors
from wheel_builder.base.errors import DeviceCodeError, ProblemsError, WheelBuilderError

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, WheelBuilderError) and value is not ProblemsError
]


def test_every_kind_has_its_own_exit_code():
    codes = [cls.exit_code for cls in CLASSES]
    assert len(codes) > 10
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_exit_code_means_nothing_else(cls):
    # 0 success, 2 wrong usage (argparse), 126 and above the shell and signals.
    assert 0 < cls.exit_code < 126
    assert cls.exit_code != 2


@pytest.mark.parametrize("cls", CLASSES)
def test_every_kind_says_what_it_is(cls):
    assert cls.__doc__


def test_advice_is_the_last_line():
    error = WheelBuilderError("no engine answers", advice="start dockerd")
    assert str(error) == "no engine answers\n  next: start dockerd"


def test_without_advice_there_is_no_next_line():
    assert str(WheelBuilderError("no engine answers")) == "no engine answers"


def test_problems_are_listed_together():
    error = ProblemsError("two things", (p for p in ["one", "other"]), advice="look")
    assert error.problems == ("one", "other")
    assert str(error) == "two things\n  - one\n  - other\n  next: look"


def test_errors_of_other_processes_arrive_whole():
    sent = DeviceCodeError("the checks do not understand a kernel", ["one", "two"], advice="read it")
    found = pickle.loads(pickle.dumps(sent))
    assert type(found) is DeviceCodeError
    assert (str(found), found.problems) == (str(sent), sent.problems)
