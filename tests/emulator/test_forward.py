"""The shipped forward kernels, executed with all sanitizers on: right numbers, and nothing found."""

from dataclasses import replace

import pytest

from wheel_builder.emulator.attention import Case, compare, make_call, run_call
from wheel_builder.emulator.command import emulate, open_machine, report, tile_of
from wheel_builder.emulator.machine import ALL_CHECKS, Options

ARCHS = ("gfx908", "gfx942", "gfx1030", "gfx1100")
# Query and key lengths around the tiles' edges, with and without causal mask and grouped heads.
SHAPES = (
    {"seqlen_q": 1, "seqlen_k": 257, "nheads": 2, "causal": True},
    {"seqlen_q": 15, "seqlen_k": 16, "nheads": 2},
    {"seqlen_q": 16, "seqlen_k": 15, "nheads": 2, "causal": True},
    {"seqlen_q": 17, "seqlen_k": 17, "nheads": 2, "causal": True},
    {"seqlen_q": 63, "seqlen_k": 65, "nheads": 2, "nheads_k": 2, "causal": True},
    {"seqlen_q": 64, "seqlen_k": 64, "nheads": 2},
    {"seqlen_q": 65, "seqlen_k": 63, "nheads": 2, "causal": True},
    {"seqlen_q": 113, "seqlen_k": 1, "nheads": 2},
    {"seqlen_q": 257, "seqlen_k": 113, "nheads": 2, "causal": True},
    {"seqlen_q": 113, "seqlen_k": 257, "nheads": 4, "nheads_k": 2, "causal": True},
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s['seqlen_q']}x{s['seqlen_k']}")
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("arch", ARCHS)
def test_forward(workshop, device_code, arch, dtype, head_dim, shape):
    case = Case(dtype, head_dim, **shape)
    emulated = emulate(device_code(arch) / f"{case.kernel}.hsaco", arch, case, Options(seed=1), workshop)
    assert emulated.passed, report(emulated)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("arch", ARCHS)
def test_without_checks_the_bytes_are_the_same(workshop, device_code, arch, dtype, head_dim):
    """Loads that nothing checks take a shorter road."""
    case = Case(dtype, head_dim, 113, 257, nheads=2, causal=True)
    code = (device_code(arch) / f"{case.kernel}.hsaco").read_bytes()
    machine, tile = open_machine(code, case.kernel, workshop), tile_of(arch, case, workshop)
    found = []
    for checks in (ALL_CHECKS, ()):
        call = make_call(case)
        run_call(machine, call, tile, Options(checks=checks))
        found.append((call.out.memory.read(), call.lse.read()))
    assert found[0] == found[1]


def test_a_wrong_number_is_the_first_difference(workshop, device_code):
    """The comparison itself: with another scale than the reference's, it fails and says where."""

    class Wrong(Case):
        @property
        def scale(self):
            return 0.5

    right, wrong = Case("fp16", 64, 16, 16), Wrong("fp16", 64, 16, 16)
    machine = open_machine(
        (device_code("gfx942") / f"{right.kernel}.hsaco").read_bytes(), right.kernel, workshop
    )
    call = make_call(wrong)
    run_call(machine, call, tile_of("gfx942", right, workshop), Options())
    numbers = compare(replace(call, case=right))
    assert numbers.first is not None
    assert numbers.first.what == "out"
    assert numbers.out_error > numbers.out_allowed
