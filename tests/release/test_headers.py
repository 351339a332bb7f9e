"""Headers against segments in the released wheel: a loader sees accepted files as before.

The library needs a torch for ROCm, so a model of a loader judges here. ``tests/channel/wheel_rules`` compares
the model with glibc, on a library without dependencies.
"""

import logging
import random

import pytest

from tests.channel.wheel_rules.headers import Mutator, model
from tests.tools.made.elves import EM_AMDGPU, EM_X86_64
from wheel_builder.files.binaries.elf import read_elf, section_bytes
from wheel_builder.files.binaries.elflayout import elf_layout_problems
from wheel_builder.files.device.codeobject import code_object_problems
from wheel_builder.files.device.fatbin import SECTION, CodeObject
from wheel_builder.files.device.library import LIBRARY, code_objects, unused_bundles
from wheel_builder.files.wheels.wheelfile import read_wheel

LOG = logging.getLogger(__name__)
SEED = 20261123
SHORT, FULL = 500, 20000


@pytest.fixture(scope="module")
def library(release):
    return read_wheel(release.wheel, max_mib=64).files[LIBRARY]


def reads_alike(data, good):
    kernels = section_bytes(data, SECTION) == section_bytes(good, SECTION)
    return kernels and read_elf(data) == read_elf(good)


def attack(count, good, is_accepted):
    """Counts of accepted and refused mutants. Accepted ones load as before."""
    mutator, found = Mutator(good, random.Random(SEED), hashes=False), {"accepted": 0, "refused": 0}
    expected = model(good)
    for _ in range(count):
        data, changes = mutator.mutant()
        if not is_accepted(data):
            found["refused"] += 1
            continue
        found["accepted"] += 1
        assert model(data) == expected, changes
    LOG.info("%s of %s", found, dict(mutator.kinds))  # shown with --log-cli-level=INFO
    assert found["accepted"] > count * 0.02
    assert found["refused"] > count * 0.5


def attack_library(count, good):
    def is_accepted(data):
        return (
            not elf_layout_problems(data, EM_X86_64) and reads_alike(data, good) and not unused_bundles(data)
        )

    assert is_accepted(good)
    attack(count, good, is_accepted)


def attack_code_object(count, code):
    def is_accepted(data):
        own = CodeObject(code.arch, data)
        return not elf_layout_problems(data, EM_AMDGPU) and not code_object_problems(own)

    assert is_accepted(code.data)
    attack(count, code.data, is_accepted)


def test_mutants_of_the_librarys_headers(library):
    attack_library(SHORT, library)


def test_mutants_of_a_code_objects_headers(library):
    attack_code_object(SHORT, code_objects(library)[0])


@pytest.mark.full
def test_many_mutants_of_the_librarys_headers(library):
    attack_library(FULL, library)


@pytest.mark.full
def test_many_mutants_of_code_objects_headers(library):
    for code in code_objects(library)[::16]:
        attack_code_object(FULL // 10, code)
