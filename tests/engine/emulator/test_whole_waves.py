"""The core's checks of a whole wave at once give the findings of lane-by-lane checks."""

import struct

import pytest

from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory, i32, pack_arguments
from wheel_builder.tables.archs import known_archs

N = 64


@pytest.fixture(params=known_archs())
def machine(machines, request):
    return machines("whole_waves", request.param)


def run(machine, kernel, *, threads=N, groups=1, words=N, out=None, **options):
    """Run ``kernel(in, out, 64)`` with ``words`` of LDS.  ``out`` is unwritten."""
    given = Memory.of(struct.pack(f"<{threads}f", *range(threads)), "in", readonly=True)
    out = out or Memory.output(4 * threads, "out")
    launch = Launch((groups, 1, 1), (threads, 1, 1), 4 * words)
    result = machine.run(
        kernel, launch, pack_arguments([given, out, i32(N)]), [given, out], Options(**options)
    )
    assert result.error == ""
    return result


def told(result):
    return [(f.kind, f.count, f.lane, f.detail.partition(" at ")[0]) for f in result.findings]


@pytest.mark.parametrize("seed", range(3))
def test_a_store_after_many_noted_reads_races_with_the_last_readers(machine, seed):
    waves = 256 // machine.kernels["store_after_reads"].wave_size
    found = run(machine, "store_after_reads", threads=256, words=256, seed=seed).findings
    races = {f.kind for f in found}
    assert races <= {"lds-race"}
    assert found, "the store was not found"
    for finding in found:
        other = int(finding.detail.partition(" wave ")[2].partition(" ")[0])
        assert other in range(waves)
        assert other != finding.wave
        assert "conflicts with a " in finding.detail
        assert "without a barrier or atomic between them" in finding.detail


@pytest.mark.parametrize("seed", range(3))
def test_a_barrier_ends_what_was_noted(machine, seed):
    assert told(run(machine, "store_behind_barrier", threads=256, words=256, seed=seed)) == []


def test_waves_may_share_a_word_but_no_byte(machine):
    assert told(run(machine, "halves_apart", threads=2 * N)) == []
    found = run(machine, "halves_together", threads=2 * N, checks=("race",)).findings
    assert [f.kind for f in found] == ["lds-race"]
    assert (found[0].count, found[0].address) == (1, 4 * 9)


def test_lanes_that_load_nothing_stay_undefined(machine):
    result = run(machine, "loaded_in_part")
    size = machine.kernels["loaded_in_part"].wave_size
    assert told(result) == [
        ("undefined-store", 24, 40 % size, "store to buffer 'out' of data that nothing has computed")
    ]


def test_one_undefined_byte_in_lds_is_found(machine):
    found = run(machine, "stored_in_part").findings
    size = machine.kernels["stored_in_part"].wave_size
    assert [(f.kind, f.count, f.lane) for f in found] == [("undefined-store", 1, 32 % size)]
    assert "; the wave's last load of memory that nothing has written was at " in found[0].detail
    assert told(run(machine, "stored_whole")) == []


@pytest.mark.parametrize(("kernel", "first"), [("groups_overlap", 48), ("groups_overlap_downwards", 96)])
def test_workgroups_that_overlap_in_part_race_where_they_do(machine, kernel, first):
    out = Memory.output(4 * (3 * N), "out")
    found = run(machine, kernel, groups=3, out=out).findings
    assert [(f.kind, f.count, f.address - out.address, f.group) for f in found] == [
        ("global-race", 2 * 16 * 4, 4 * first, (1, 0, 0))
    ]
    assert "conflicts with a store by workgroup (0,0,0)" in found[0].detail
