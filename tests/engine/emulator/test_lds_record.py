"""The emulator's record of LDS instructions, charged by hand-known conflicts (data/conflicts.hip)."""

import pytest

from wheel_builder.extras.perf.model.lds import orders
from wheel_builder.extras.perf.model.trace import trace_of
from wheel_builder.machine_code.disassembly.kernels import parse_disassembly
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory, i32, memories, pack_arguments
from wheel_builder.tables.archs import known_archs

ARCHS = tuple(known_archs())


@pytest.fixture
def recorded(machines, compiled, disassembled):
    """``recorded(kernel, arch)``: the trace of one wave, and its run."""

    def trace(kernel, arch):
        machine, wave = machines("conflicts", arch), known_archs()[arch].isa.wave
        arguments = (Memory.output(4 * wave, "out"), i32(wave))
        launch, options = Launch((1, 1, 1), (wave, 1, 1)), Options(checks=(), only_group=0, record=True)
        run = machine.run(kernel, launch, pack_arguments(arguments), memories(arguments), options)
        assert not run.error
        functions = {f.name: f for f in parse_disassembly(disassembled(compiled("conflicts", arch)))}
        return trace_of(arch, functions[kernel], machine.program, run), run

    return trace


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("kernel", "ways"),
    [("side_by_side", 1), ("strided", 32), ("padded", 1), ("broadcast", 1), ("two_lanes", 2)],
)
def test_conflicts_known_by_hand(recorded, arch, kernel, ways):
    found, _ = recorded(kernel, arch)
    for order in orders(arch):
        (use,) = found.uses(found.charges(order))
        assert use.ways == ways
        assert use.looped == (kernel == "strided")


@pytest.mark.parametrize("arch", ARCHS)
def test_exec_is_recorded_with_every_access(recorded, arch):
    """The other record has its number of lanes."""
    for kernel in ("two_lanes", "padded"):
        found, run = recorded(kernel, arch)
        lanes = [word >> 24 for word in run.recorded[0]]
        places = [found.instructions[found.waves[0][n][0]].first.kind for n in range(len(lanes))]
        (access,) = found.accesses
        assert [n for n, kind in zip(lanes, places, strict=True) if kind == "lds"] == [
            access.active.bit_count()
        ]
        assert len(access.lanes) == known_archs()[arch].isa.wave
