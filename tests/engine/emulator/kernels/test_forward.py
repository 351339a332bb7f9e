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


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(("heads", "heads_k"), [(6, 2), (12, 3)])
def test_the_order_of_workgroups_changes_no_bit(workshop, device_code, arch, causal, heads, heads_k):
    """Dies: none, as many as a device has, and a number with a remainder. With heads in turn, and without."""
    case = Case("fp16", 64, 300, 97, batch=2, nheads=heads, nheads_k=heads_k, causal=causal)
    code = (device_code(arch) / f"{case.kernel}.hsaco").read_bytes()
    machine, tile = open_machine(code, case.kernel, workshop), forward_workgroup(arch, case)
    found = set()
    for together in (0, 1, 2) if heads % 4 == 0 else (0, 1):
        for dies in (0, 8, 5):
            call = make_call(case, dies=dies, together=together)
            run_call(machine, call, tile, Options(checks=())).raise_on_findings()
            found.add((call.out.memory.read(), call.lse.read()))
    [(out, _)] = found
    assert b"\xa5" * 64 not in out  # all of it is written


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
