"""Both models from a recorded run of a pretended machine, and the table."""

import pytest

from tests.tools.made.assembly import START, code, disassembly
from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.golden import figures_of
from wheel_builder.extras.perf.measure import Subject, measure
from wheel_builder.extras.perf.table import conflicts, table
from wheel_builder.extras.perf.workloads.workload import Workload
from wheel_builder.machine_code.emulator.machine import Count, Launch, Result

NAME = "fa_fwd_fp16_d64"
LINES = (
    "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]",
    "v_add_f32_e32 v20, v21, v21",
    "ds_read_b32 v20, v22",
    "s_endpgm",
)
ALL_LANES = 64 << 24


class Machine:
    """Records one wave that executes every line once, the LDS's lines twice."""

    def __init__(self, error="", stride=4, arch="gfx942", swizzle=0):
        self.program = tuple((START + 4 * n, line) for n, line in enumerate(LINES))
        self.error = error
        self.arch = arch
        lanes = (stride * lane + swizzle * (lane >= 16) for lane in range(64))
        self.lds = [2, ~0 & 0xFFFFFFFF, ~0 & 0xFFFFFFFF, 0, 0, *lanes] * 2

    def run(self, kernel, launch, kernarg, memory, options):
        assert options.record
        assert options.only_group == 0
        counts = {
            "v_mfma_f32_32x32x8_f16": Count("matrix", 1, 64),
            "v_add_f32": Count("valu", 1, 64),
            "s_endpgm": Count("end", 1, 64),
        }
        executed = [ALL_LANES | n for n in (0, 1, 2, 2, 3)]
        return Result(5, (), counts, self.error, (executed,), (self.lds,))


def workload(op="fwd", flop=1024, label="ours", grid=(2, 1, 1), dynamic_lds=0):
    launch = Launch(grid, (64, 1, 1), dynamic_lds)
    return Workload(label, NAME, op, "fp16", 64, launch, (), {}, lambda _: flop)


def measured(*, stride=4, swizzle=0, arch="gfx942", lines=LINES, only_figures=False, **changed):
    lines = [line.replace("x8_f16", "x8f16") if arch == "gfx908" else line for line in lines]
    machine = Machine(stride=stride, arch=arch, swizzle=swizzle)
    subject = Subject(machine, disassembly(*lines, name=NAME), code(NAME, lds_bytes=16384))
    return measure(subject, workload(**changed), only_figures=only_figures)


def test_both_models():
    found = measured()
    assert (found.executed, found.flop, found.workgroups) == (5, 1024, 2)
    assert (found.bound.matrix, found.bound.valu) == (8, 1)
    assert found.bound_flop == 128
    # 138 VGPRs and 16 KiB of LDS: LDS allows four single waves, one per SIMD. Another follows each.
    assert found.schedule.waves_per_simd == 1
    assert (found.schedule.workgroups, found.schedule.clocks) == (8, 64)
    assert found.schedule_flop == 1024 * 8 / 64


def test_dynamic_lds_takes_room_too():
    found = measured(dynamic_lds=16384)
    assert found.taken.lds_bytes == 32768
    assert found.schedule.waves_per_simd == 0.5


def test_a_run_that_stops_early_is_refused():
    subject = Subject(Machine("endless loop?"), disassembly(*LINES, name=NAME), code(NAME, lds_bytes=16384))
    with pytest.raises(PerfError, match="did not run to its end") as refusal:
        measure(subject, workload())
    assert "endless loop?" in str(refusal.value)


def figures(text, op):
    """The table's line of a kernel, without its name."""
    lines = (line.split() for line in text.partition("Conflicts")[0].splitlines())
    (line,) = (line[4:] for line in lines if line[1:2] == [op])
    return line


def test_the_table_says_that_it_is_modelled():
    text = table([measured()])
    assert text.startswith("Modelled, not measured")
    assert figures(text, "fwd") == [
        "ours", "measured", "5", "138", "0", "16384", "1.0", "1", "1.000", "128", "0.50", "1.00",
        "1.000", "128", "114", "128", "128",
    ]  # fmt: skip


def test_the_exclusive_schedule_is_a_column_of_the_archs_that_have_it():
    exp = (LINES[0], LINES[1].replace("v_add_f32_e32 v20, v21, v21", "v_exp_f32_e32 v20, v21"), *LINES[2:])
    found = measured(lines=exp)
    assert found.charged[0].exclusive.clocks > found.schedule.clocks
    plain, exclusive = (each.clocks_per_workgroup for each in (found.schedule, found.charged[0].exclusive))
    assert figures(table([found]), "fwd")[-4:] == [
        f"{1024 / plain:.0f}", "114", f"{1024 / exclusive:.0f}", f"{1024 / plain:.0f}"
    ]  # fmt: skip
    older = table([measured(arch="gfx908")]).splitlines()
    assert {line.split()[-2] for line in older if line.startswith("gfx908")} == {"-"}


def test_conflicts_are_listed_by_instruction():
    rows = [measured(stride=128)]
    assert figures(table(rows), "fwd")[7] == "32"
    listed = conflicts(rows).splitlines()[-1].split()
    assert listed == [
        "gfx942", "fwd", "fp16", "d64", "ours", "measured", "+0x8",
        "ds_read_b32", "v20,", "v22", "2", "32", "124",
    ]  # fmt: skip
    assert "ds_read_b32" not in conflicts([measured()])


def test_conflicts_slow_both_models_and_the_schedule_without_the_lds_stays():
    free, slow = measured(), measured(stride=128)
    assert slow.bound.banks == free.bound.banks + 2 * 62 == 128
    assert slow.bound.port == free.bound.port + 1.65 * 62
    assert slow.schedule.clocks == 8 + 8 * 128 > free.schedule.clocks  # the eight workgroups take turns
    assert slow.free == free.free


def test_an_arch_that_nobody_measured_has_a_line_for_each_order():
    rows = [measured(arch="gfx908")]
    lines = [line.split()[5] for line in table(rows).splitlines() if line.startswith("gfx908")]
    assert lines == ["measured", "contiguous"]


WIDE = [line.replace("ds_read_b32 v20", "ds_read_b128 v[20:23]") for line in LINES]


@pytest.mark.parametrize("arch", ["gfx908", "gfx942"])
def test_the_figures_are_the_same_without_the_schedules_of_the_table(arch):
    every, few = (measured(arch=arch, lines=WIDE, stride=32, only_figures=only) for only in (False, True))
    assert [*figures_of([every])] == [*figures_of([few])]
    assert every.free != few.free == few.schedule == few.charged[0].port != every.charged[0].port


def test_orders_of_phases_under_which_an_access_costs_more_are_another_schedule():
    """Lanes 0 and 20 need the same bank, and share a phase only in the measured order."""
    found = measured(arch="gfx908", lines=WIDE, stride=16, swizzle=64)
    assert [charged.order for charged in found.charged] == ["measured", "contiguous"]
    one, other = found.charged
    assert (one.ways, other.ways) == (2, 1)
    assert one.schedule.clocks > other.schedule.clocks


def test_a_backward_is_summed_over_its_kernels():
    parts = [measured(op=op, label="some, 64x64") for op in ("bwd_delta", "bwd_dkdv", "bwd_dq")]
    # Five quarters of dK and dV's work, over the clocks of three kernels of 8 each.
    assert figures(table(parts), "separate") == ["some", "measured", "53", "53", "47", "53", "53"]


def test_a_fused_backward_does_what_is_useful_and_no_more():
    parts = [measured(op=op, label="some, 64x64") for op in ("bwd_delta", "bwd_fused", "bwd_convert")]
    assert figures(table(parts), "fused") == ["some", "measured", "43", "43", "38", "43", "43"]
    assert " split " not in table(parts)


def test_without_one_of_its_kernels_a_backward_has_no_sum():
    parts = [measured(op=op, label="some, 64x64") for op in ("bwd_delta", "bwd_fused")]
    assert " fused " not in table(parts)
