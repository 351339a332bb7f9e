"""A workgroup's bytes, the bandwidth they need from a GPU, and decode's share of it."""

from dataclasses import replace

import pytest

from tests.tools.made.assembly import START, kernel
from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model.memory import LATENCIES, WORKGROUPS, decode, demand, moved
from wheel_builder.extras.perf.model.trace import trace_of
from wheel_builder.machine_code.emulator.machine import Count, Result
from wheel_builder.tables.archs import arch_named

LINES = ("global_load_dwordx4 v[0:3], v4, s[0:1]", "s_waitcnt vmcnt(0)")


def counts(**lanes):
    return {name: Count("vmem", 1, n) for name, n in lanes.items()}


def test_active_lanes_load_and_store():
    found = moved(counts(buffer_load_dwordx4=100, global_store_short=8, ds_read_b128=64, s_load_dwordx4=1))
    assert (found.loaded, found.stored) == (1600, 16)


def test_scratch_is_left_out_and_an_unknown_width_refused():
    assert moved(counts(scratch_load_dword=64)).loaded == 0
    with pytest.raises(PerfError, match="the width of a memory instruction is not known"):
        moved(counts(global_load_strange=1))


def test_what_all_compute_units_ask_for():
    found = demand("gfx942", 12_800, 1_280, 1000.0)
    assert found.rate == 12.8
    assert found.memory == pytest.approx(12.8 * 2.1e9 * 304 / 5.3e12)
    assert found.once == pytest.approx(found.memory / 10)
    assert found.binds == "reuse 1.5"


@pytest.mark.parametrize(
    ("loaded", "once", "binds"), [(1_000, 1_000, "no"), (20_000, 20_000, "memory"), (200_000, 20, "L2")]
)
def test_what_binds(loaded, once, binds):
    assert demand("gfx942", loaded, once, 1000.0).binds == binds


def loads(count, arch="gfx942"):
    """One wave with ``count`` loads of a KiB, each followed by a wait."""
    program = tuple((START + 4 * n, line) for n, line in enumerate((*LINES, "s_endpgm")))
    run = Result(0, (), {}, "", ([0, 1] * count + [2],), ([],))
    return trace_of(arch, kernel(*LINES), program, run)


def share(found, latency, workgroups):
    (one,) = (s.share for s in found.shares if (s.latency, s.workgroups) == (latency, workgroups))
    return one


def test_one_load_at_a_time_takes_its_latency():
    """A KiB at 8.3 bytes a clock takes 123 of the 2100 clocks in a microsecond."""
    found = decode(loads(50), 50 * 1024, resident=4)
    width = 5.3e12 / 2.1e9 / 304
    assert share(found, 1000, 1) == pytest.approx(1024 / 2100 / width, rel=0.02)
    assert share(found, 1000, 4) == pytest.approx(4 * share(found, 1000, 1), rel=0.02)
    assert share(found, 2000, 1) == pytest.approx(share(found, 1000, 1) / 2, rel=0.02)
    assert found.needed[1000] == pytest.approx(2100 * width)


def test_no_more_than_the_bandwidth_and_no_more_workgroups_than_fit():
    found = decode(loads(5), 500 * 1024, resident=2)
    assert {s.workgroups for s in found.shares} == {1, 2}
    assert {s.share for s in found.shares} == {1}


def test_every_latency_and_number_of_workgroups():
    found = decode(loads(1), 1, resident=9)
    assert [(s.latency, s.workgroups) for s in found.shares] == [
        (t, n) for t in LATENCIES for n in WORKGROUPS
    ]


def test_a_trace_can_have_other_numbers():
    far = replace(loads(1), machine=replace(arch_named("gfx942").isa.timing, vmem=99))
    assert far.steps[START].latency == 99
    assert loads(1).steps[START].latency == arch_named("gfx942").isa.timing.vmem


def test_code_of_loops():
    assert loads(2).looped_bytes == 8
    assert loads(1).looped_bytes == 0
