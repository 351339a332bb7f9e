"""Runs of one forward kernel: its options, and the comparison with float64.

tests/installed/numerics tests the wheel's kernels from the public functions down.
"""

from dataclasses import replace

import pytest

from wheel_builder.machine_code.emulator.attention import Case, compare, make_call, run_call
from wheel_builder.machine_code.emulator.command import forward_workgroup, open_machine
from wheel_builder.machine_code.emulator.machine import ALL_CHECKS, Options
from wheel_builder.tables.archs import known_archs

ARCHS = tuple(known_archs())


@pytest.mark.parametrize("arch", ARCHS)
def test_without_checks_the_bytes_are_the_same(workshop, device_code, arch):
    """Unchecked loads take a faster path."""
    case = Case("fp16", 64, 33, 97, nheads=2, causal=True)
    code = (device_code(arch) / f"{case.kernel}.hsaco").read_bytes()
    machine, tile = open_machine(code, case.kernel, workshop), forward_workgroup(arch, case)
    found = []
    for checks in (ALL_CHECKS, ()):
        call = make_call(case)
        run_call(machine, call, tile, Options(checks=checks))
        found.append((call.out.memory.read(), call.lse.read()))
    assert found[0] == found[1]


def test_a_wrong_number_is_the_first_difference(workshop, device_code):
    """Tests the comparison itself: with a scale unlike the reference's, it fails and names the place."""

    class Wrong(Case):
        @property
        def scale(self):
            return 0.5

    right, wrong = Case("fp16", 64, 16, 16), Wrong("fp16", 64, 16, 16)
    machine = open_machine(
        (device_code("gfx942") / f"{right.kernel}.hsaco").read_bytes(), right.kernel, workshop
    )
    call = make_call(wrong)
    run_call(machine, call, forward_workgroup("gfx942", right), Options())
    numbers = compare(replace(call, case=right))
    assert numbers.first is not None
    assert numbers.first.what == "out"
    assert numbers.out_error > numbers.out_allowed
