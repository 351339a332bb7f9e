"""Forwards under disputed rates: the accepted figures."""

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.lines import LINES, figures_of, parse_lines, to_text
from wheel_builder.extras.perf.measure import measure
from wheel_builder.extras.perf.model.disputed import disputed
from wheel_builder.extras.perf.run import subjects
from wheel_builder.extras.perf.workloads import ours
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.tables.archs import arch_named

KERNELS = ("fa_fwd_fp16_d64", "fa_fwd_fp16_d128")
ARCHS = ("gfx942", "gfx950", "gfx1201")  # of each disputed rate at least one


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
    found = [forward(arch, kernel) for arch in ARCHS for kernel in KERNELS]
    golden(to_text(sorted(figures_of(found))), LINES)


def test_every_line_has_figures():
    found = {(each.arch, each.line) for each in parse_lines((CHECKOUT / LINES).read_text())}
    assert found == {(arch, line) for arch in ARCHS for line in ("plain", *disputed(arch_named(arch)))}
