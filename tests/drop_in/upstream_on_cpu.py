"""A pytest plugin: upstream's own tests/test_flash_attn.py, unmodified, on the PyTorch implementation.

The file asks for tensors on "cuda" and, when it is imported, for facts of a GPU: here tensors are on the CPU,
and the facts are an A100's.  Of its half a million cases a seeded sample runs, drawn before pytest makes the
cases, which alone takes more than a minute.  From the environment:

    FA_UPSTREAM_CASES   cases of each test
    FA_UPSTREAM_SCORES  the most scores (rows * keys, in all calls of the function) that a case may have
    FA_UPSTREAM_SEED    other seeds draw other samples
"""

import itertools
import os
import random
from types import SimpleNamespace

import flash_attn.flash_attn_interface
import pytest
import torch
from torch.overrides import TorchFunctionMode

CASES = int(os.environ["FA_UPSTREAM_CASES"])
SCORES = int(os.environ["FA_UPSTREAM_SCORES"])
SEED = os.environ["FA_UPSTREAM_SEED"]
DRAWS = 200  # for each case, before the sample stays smaller: a test may have few cases as short as wanted
# How often a test calls the function to see whether it gives the same bits again.
CALLS = {"race_condition": 250, "deterministic": 50}
A100 = SimpleNamespace(total_memory=80 * 2**30)


class OnCpu(TorchFunctionMode):
    """Makes tensors on the CPU where "cuda" is asked for."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        del types
        given = dict(kwargs or {})
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        return function(*args, **given)


def pytest_configure():
    torch.set_num_threads(1)  # the tensors are small: threads cost more than they give
    torch.cuda.get_device_capability = lambda _=None: (8, 0)
    torch.cuda.get_device_properties = lambda _=None: A100
    # The width of a tile of upstream's kernels, imported for the function that is replaced below.
    flash_attn.flash_attn_interface._get_block_size_n = None
    OnCpu().__enter__()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """Before pytest's own: a test's lists of values become one list of drawn cases."""
    # Upstream's kernels scale probabilities by a maximum of each tile, which this takes back; ours do not.
    metafunc.module.normalize_flash_attn_S = lambda probabilities, *_, **__: probabilities
    test = metafunc.definition
    marks = [mark for mark in test.own_markers if mark.name == "parametrize"]
    test.own_markers[:] = [mark for mark in test.own_markers if mark not in marks]
    names = [name for mark in marks for name in names_of(mark)]
    cases = drawn(test.name, names, [values_of(mark) for mark in marks])
    metafunc.parametrize(names, cases, ids=["-".join(map(str, case)) for case in cases])


def drawn(test, names, lists):
    """At most ``CASES`` different cases without too many scores, in the order of drawing."""
    source = random.Random(f"{SEED} {test}")
    calls = next((number for name, number in CALLS.items() if test.endswith(name)), 1)
    found = {}
    for _ in range(DRAWS * CASES):
        case = tuple(itertools.chain(*map(source.choice, lists)))
        if calls * scores(dict(zip(names, case, strict=True))) <= SCORES:
            found[case] = None
        if len(found) == CASES:
            break
    return list(found)


def scores(case):
    """Rows times keys; one test has its lengths, which are small, in its code."""
    rows = case.get("seqlen", case.get("seqlen_q", 0))
    return rows * case.get("seqlen_k", rows)


def names_of(mark):
    names = mark.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def values_of(mark):
    """Each entry of the mark's list as a tuple, with a value for each of its names."""
    return [each if len(names_of(mark)) > 1 else (each,) for each in mark.args[1]]
