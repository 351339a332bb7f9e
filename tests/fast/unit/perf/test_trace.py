"""A recorded run as steps, charges and the conflicts of each instruction."""

import pytest

from tests.tools.made.assembly import START, kernel
from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model.lds import MEASURED
from wheel_builder.extras.perf.model.trace import trace_of
from wheel_builder.machine_code.emulator.machine import Result

READ = "ds_read_b32 v0, v1"
LINES = ("v_mov_b32_e32 v1, v2", READ, "ds_write_b64 v1, v[2:3] offset:8")
PROGRAM = tuple((START + 4 * n, line) for n, line in enumerate((*LINES, "s_endpgm")))
ROW = 128


def words(index, stride, *, active=(1 << 64) - 1, offsets=(0, 0)):
    """An LDS instruction in a record, with lanes ``stride`` bytes apart."""
    return [index, active & 0xFFFFFFFF, active >> 32, *offsets, *(stride * lane for lane in range(64))]


def traced(*waves):
    """A trace. A wave is its executed indices, and its record of the LDS."""
    recorded = tuple([index | 64 << 24 for index in executed] for executed, _ in waves)
    run = Result(0, (), {}, "", recorded, tuple(lds for _, lds in waves))
    return trace_of("gfx942", kernel(*LINES), PROGRAM, run)


def test_a_loop_is_charged_by_execution():
    """The same instruction is free of conflicts the first time only."""
    found = traced(([0, 1, 1, 3], words(1, 4) + words(1, ROW)))
    charges = found.charges(MEASURED)
    assert [[step.busy for step in wave] for wave in found.uncharged()] == [[4, 2, 2, 0]]
    assert [[step.busy for step in wave] for wave in found.paths(charges, port=False)] == [[4, 2, 64, 0]]
    assert [step.hold for wave in found.paths(charges, port=False) for step in wave] == [0] * 4
    assert [step.hold for wave in found.paths(charges, port=True) for step in wave] == [0, 8, 111, 0]


def test_the_worst_execution_and_the_sum_of_all():
    found = traced(([1, 1], words(1, 4) + words(1, 8)), ([1, 2], words(1, ROW) + words(2, 8)))
    read, write = found.uses(found.charges(MEASURED))
    assert (read.offset, read.text, read.executed) == (4, READ, 3)
    assert (read.ways, read.extra, read.looped) == (32, 2 + 62, True)
    assert (write.offset, write.executed, write.ways, write.extra, write.looped) == (8, 1, 1, 0, False)


def test_equal_accesses_are_counted():
    found = traced(([1, 1], words(1, 4) + words(1, 4)), ([1], words(1, 4)))
    assert list(found.accesses.values()) == [3]


@pytest.mark.parametrize(
    ("executed", "lds"),
    [([1], []), ([1, 2], words(2, 8) + words(1, 4)), ([0], words(1, 4)), ([1], words(1, 4) * 2)],
    ids=["no addresses", "another order", "not executed", "once too often"],
)
def test_an_lds_instruction_without_its_addresses_is_refused(executed, lds):
    with pytest.raises(PerfError, match="does not fit the record of all"):
        traced((executed, lds))
