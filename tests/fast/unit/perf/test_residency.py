"""How many workgroups fit."""

import pytest

from tests.tools.made.assembly import code
from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model.residency import resident_workgroups
from wheel_builder.machine_code.disassembly.resources import read_resources


def taken(**changed):
    (found,) = read_resources(code(**{"lds_bytes": 16384, **changed})).values()
    return found


def test_registers_limit():
    assert resident_workgroups("gfx942", taken(vgpr=138), threads=256) == 3  # 512 / 144
    assert resident_workgroups("gfx942", taken(vgpr=264), threads=256) == 1


def test_lds_limits_with_what_the_launch_adds():
    assert resident_workgroups("gfx942", taken(vgpr=64, lds_bytes=16384), threads=256) == 4
    assert resident_workgroups("gfx942", taken(vgpr=64), threads=256, dynamic_lds=16384) == 2


def test_scalar_registers_limit_on_gfx9():
    assert resident_workgroups("gfx908", taken(vgpr=24, sgpr=102, lds_bytes=0), threads=256) == 7


def test_a_workgroup_of_two_waves_is_not_rounded_to_whole_simds():
    assert resident_workgroups("gfx942", taken(vgpr=512, lds_bytes=0), threads=128) == 2


def test_a_workgroup_that_does_not_fit_is_refused():
    with pytest.raises(PerfError, match="does not fit on gfx942"):
        resident_workgroups("gfx942", taken(vgpr=512), threads=512)
