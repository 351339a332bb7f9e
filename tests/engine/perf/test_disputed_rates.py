"""Forwards under disputed rates: the accepted figures."""

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.golden import FLOP, accepted_figures
from wheel_builder.extras.perf.lines import LINES, PLAIN, figures_of, parse_lines, to_text
from wheel_builder.extras.perf.measure import measure
from wheel_builder.extras.perf.model.disputed import disputed
from wheel_builder.extras.perf.run import subjects
from wheel_builder.extras.perf.workloads import ours
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.tables.archs import arch_named

FORWARDS = ("fa_fwd_fp16_d64", "fa_fwd_fp16_d128")
INT8 = ("fa_fwd_int8_fp16_d64", "fa_fwd_int8_fp16_d128")
# Of each disputed rate at least one arch.
KERNELS = {"gfx942": FORWARDS, "gfx950": FORWARDS, "gfx1201": (*FORWARDS, *INT8)}


@pytest.fixture
def forward(bench, device_code):
    """``forward(arch, kernel)``: its figures, with 512 keys."""

    def modelled(arch, kernel):
        code = (device_code(arch) / f"{kernel}.hsaco").read_bytes()
        (subject,) = subjects([CodeObject(arch, code)], bench)
        workload = ours.forward(subject.machine.kernels[kernel], dies=ours.dies_of(arch))
        return measure(subject, workload)

    return modelled


@pytest.mark.full
def test_figures_under_disputed_rates(forward, golden):
    found = [forward(arch, kernel) for arch, kernels in KERNELS.items() for kernel in kernels]
    golden(to_text(sorted(figures_of(found))), LINES)


def test_every_kernel_has_figures_of_every_line():
    """And no other kernel: the full test would drop its figures."""
    found = [(each.arch, each.kernel, each.line) for each in parse_lines((CHECKOUT / LINES).read_text())]
    assert sorted(found) == sorted(
        (arch, named(kernel), line)
        for arch, kernels in KERNELS.items()
        for kernel in kernels
        for line in (PLAIN, *disputed(arch_named(arch)))
    )


def test_plain_figures_are_the_accepted_ones():
    accepted = accepted_figures(CHECKOUT, tuple(KERNELS))
    for each in parse_lines((CHECKOUT / LINES).read_text()):
        wanted = (FLOP, "flash-attn-rocm", each.kernel, each.flop)
        assert each.line != PLAIN or wanted in accepted[each.arch]


def named(kernel):
    """``fwd_int8 fp16 d64`` of ``fa_fwd_int8_fp16_d64``."""
    return " ".join(kernel.removeprefix("fa_").rsplit("_", 2))
