"""Both models from a recorded run, with a machine that only pretends to run; and the table."""

import pytest

from tests.assembly import START, disassembly, notes
from wheel_builder.base.errors import PerfError
from wheel_builder.emulator.machine import Count, Launch, Result
from wheel_builder.perf.measure import Subject, measure
from wheel_builder.perf.table import table
from wheel_builder.perf.workload import Workload

NAME = "fa_fwd_fp16_d64"
LINES = (
    "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]",
    "v_add_f32_e32 v20, v21, v21",
    "s_endpgm",
)
ALL_LANES = 64 << 24


class Machine:
    """Records one wave that executes every line once."""

    arch = "gfx942"

    def __init__(self, error=""):
        self.program = tuple((START + 4 * n, line) for n, line in enumerate(LINES))
        self.error = error

    def run(self, kernel, launch, kernarg, memory, options):
        assert options.record
        assert options.only_group == 0
        counts = {
            "v_mfma_f32_32x32x8_f16": Count("matrix", 1, 64),
            "v_add_f32": Count("valu", 1, 64),
            "s_endpgm": Count("end", 1, 64),
        }
        return Result(3, (), counts, self.error, ([ALL_LANES | n for n in range(len(LINES))],))


def workload(op="fwd", flop=1024, label="ours", grid=(2, 1, 1), dynamic_lds=0):
    launch = Launch(grid, (64, 1, 1), dynamic_lds)
    return Workload(label, NAME, op, "fp16", 64, launch, (), {}, lambda _: flop)


def measured(**changed):
    subject = Subject(Machine(), disassembly(*LINES, name=NAME), notes(NAME))
    return measure(subject, workload(**changed))


def test_both_models():
    found = measured()
    assert (found.executed, found.flop, found.workgroups) == (3, 1024, 2)
    assert (found.bound.matrix, found.bound.valu) == (8, 1)
    assert found.bound_flop == 128
    # 138 VGPRs and 16 KiB of LDS: four single waves by LDS, one a SIMD; each is followed by another.
    assert found.schedule.waves_per_simd == 1
    assert (found.schedule.workgroups, found.schedule.clocks) == (8, 64)
    assert found.schedule_flop == 1024 * 8 / 64


def test_dynamic_lds_takes_room_too():
    found = measured(dynamic_lds=16384)
    assert found.taken.lds_bytes == 32768
    assert found.schedule.waves_per_simd == 0.5


def test_a_run_that_stops_early_is_refused():
    subject = Subject(Machine("endless loop?"), disassembly(*LINES, name=NAME), notes(NAME))
    with pytest.raises(PerfError, match="did not run to its end") as refusal:
        measure(subject, workload())
    assert "endless loop?" in str(refusal.value)


def test_the_table_says_that_it_is_modelled():
    lines = table([measured()]).splitlines()
    assert lines[0].startswith("Modelled, not measured")
    assert lines[-1].split() == [
        "gfx942", "fwd", "fp16", "d64", "ours", "3", "138", "0", "16384", "1.0",
        "1.000", "128", "1.000", "128",
    ]  # fmt: skip


def test_a_backward_is_summed_over_its_kernels():
    parts = [measured(op=op, label="some, 64x64") for op in ("bwd_delta", "bwd_dkdv", "bwd_dq")]
    last = table(parts).splitlines()[-1].split()
    # Five quarters of dK and dV's work, over the clocks of three kernels of 8 each.
    assert last == ["gfx942", "bwd", "fp16", "d64", "some", "53", "53"]
