"""The numerics of the installed wheel's kernels, from ``flash_attn_func`` down to the machine code.

The tests run on an AMD GPU if PyTorch has one (scripts/test-on-gpu). Otherwise they run on the fake HIP
runtime: it executes the wheel's code objects on an ISA emulator. ``scripts/wheel-builder verify`` sets (see
wheel_builder/verify/numerics.py):

    LD_PRELOAD=libamdhip64.so.7 FA_FAKE_HIP_ARCH=gfx942 FA_FAKE_HIP_DISASSEMBLY=folder PYTHONPATH=checkout

If FA_RECORD names a file, the results are written there at the end.  With FA_FULL=1, and on a GPU, an arch
runs all tests. Otherwise it runs its share of tests divided among archs (``shares``).
"""

import json
import os
from contextlib import nullcontext
from pathlib import Path

import flash_attn_rocm
import pytest
import torch
from flash_attn_rocm.library.host import instances
from flash_attn_rocm.suite.corpus import archs_with_cases_of
from flash_attn_rocm.suite.target import BACKWARD_OP, Target
from here import ARCH, ON_GPU
from record import Record
from shares import FULL, without_others


def pytest_configure(config):
    config.addinivalue_line("markers", "divided: archs that share fuzz cases divide these tests")
    config.addinivalue_line("markers", "needs(kernels): left out on archs without any of these kernels")


def has_kernels(item):
    """Whether the wheel has some of the kernels that the test needs."""
    return all(mark.args[0] for mark in item.iter_markers("needs"))


def pytest_collection_modifyitems(items):
    # Left out instead of skipped: a skipped test verifies nothing.  Pytest marks tests parametrized with the
    # kernels of an op missing from the arch.
    items[:] = [item for item in items if not item.get_closest_marker("skip") and has_kernels(item)]
    here = {arch for instance in instances() for arch in instance.archs}
    trained = here.intersection(*(each.archs for each in instances() if each.op == BACKWARD_OP))
    # An arch without gradients, or without some head dims of them, leaves tests of gradients to no other.
    there = here & trained if ARCH in trained else here
    archs = [arch for arch in archs_with_cases_of(ARCH) if arch in there]
    if not (FULL or ON_GPU):
        items[:] = without_others(items, archs.index(ARCH), len(archs))


@pytest.fixture(scope="session")
def shown():
    found = Record()
    yield found
    if file := os.environ.get("FA_RECORD"):
        Path(file).write_text(json.dumps(found.as_json(), indent=2) + "\n")


@pytest.fixture(scope="session")
def target(shown):
    flash_attn_rocm.set_strict(True)  # an answer by anything except a kernel is a failure here
    torch.set_num_threads(1)
    if ON_GPU:
        fake_hip, path = None, nullcontext()
    else:
        from wheel_builder.machine_code.fake_hip.control import FakeHip, kernels_on_host_memory

        fake_hip = FakeHip()
        path = kernels_on_host_memory(fake_hip)
    with path:
        yield Target(fake_hip, shown)
    if fake_hip is not None:
        shown.cover(fake_hip.listing)
    flash_attn_rocm.set_strict(None)
