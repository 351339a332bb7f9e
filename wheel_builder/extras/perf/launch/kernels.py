"""Kernels as the launch model plays them, their accepted speeds, and the GPU that they run on.

``figures/launch/speeds.toml`` has the speeds: the schedule of executed workgroups
(``perf/speed.py``). All else of the launch model is computed from that file.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.launch.simulate import Die, Speed
from wheel_builder.tables.archs import Arch, arch_named, known_archs

FOLDER = Path("wheel_builder/extras/perf/figures/launch")
SPEEDS = FOLDER / "speeds.toml"
HEADER = """\
# Modelled, not measured. `scripts/test --full tests/engine/perf/test_launches.py --update` writes this.
#   rows    of a workgroup
#   clocks  of a workgroup for 128 rows that it reads, with one, two, ... of them on a compute unit (RDNA: a
#           workgroup processor), by the slowest schedule
#   start   clocks of a workgroup besides these
#   reads, adds   bytes for each row that is read
"""
FAR_LATENCY = 800e-9  # seconds from a request to its first byte, under load. Assumed
DISPATCH = 4.0  # clocks between two workgroups that a die starts. Assumed
LAST_CACHE_RATE = 3  # bandwidth of the last cache, in memory bandwidths. AMD's figures are 3.2 to 3.9 times
ADDS = 1 / 4  # of the L2's bandwidth: what it adds to, in fp32. Assumed: it reads and writes half a line
# Bytes a clock of additions that leave a die. The only fitted number of this model: it gives AMD's backwards
# the published ratio of their speeds with fp32 and 16-bit atomics (perf/atomics.py).
LEAVE = 68
TURN = 16.0  # clocks between two additions to a line. Assumed


@dataclass(frozen=True)
class Kernel:
    """A kernel, "bwd_dq fp16 d64", with the rows of a workgroup."""

    name: str
    rows: int
    speed: Speed


Kernels = Mapping[str, Kernel]  # of an arch, by name


def launched(checkout: Path) -> tuple[str, ...]:
    """Archs with accepted launches. To add one: an empty file, then the command in ``HEADER``."""
    return tuple(arch for arch in known_archs() if (checkout / FOLDER / f"{arch}.csv").is_file())


def dies_of(arch: Arch) -> int:
    """Dies of the arch's largest GPU, each with an L2."""
    return arch.compute_units // arch.die_units if arch.die_units else 1


def die_of(name: str) -> Die:
    """A die of the arch's modelled GPU, with its share of the last cache and of memory."""
    arch = arch_named(name)
    gpu, dies = arch.model, dies_of(arch)
    memory, l2 = gpu.memory / gpu.clock / dies, gpu.l2 / gpu.clock / dies
    return Die(
        units=arch.compute_units // arch.isa.cus_of_workgroup // dies,
        l2_bytes=gpu.l2_bytes,
        l2=l2,
        far_bytes=gpu.last_cache // dies,
        far=LAST_CACHE_RATE * memory,
        memory=memory,
        latency=round(FAR_LATENCY * gpu.clock),
        dispatch=DISPATCH,
        adds=ADDS * l2,
        leave=LEAVE,
        turn=TURN,
    )


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: Annotated[int, Field(strict=True, ge=1)]
    clocks: Annotated[tuple[float, ...], Field(min_length=1)]
    start: Annotated[float, Field(ge=0)]
    reads: Annotated[int, Field(strict=True, ge=1)]
    adds: Annotated[int, Field(strict=True, ge=0)] = 0


_FILE = TypeAdapter(dict[str, dict[str, _Row]])


def parse_speeds(name: str, text: str) -> Mapping[str, Kernels]:
    """Kernels by arch. Raises ``PerfError`` with all problems of the file ``name``."""
    try:
        file = _FILE.validate_python(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        advice = "write it again: scripts/test --full tests/engine/perf/test_launches.py --update"
        title = f"{name} is not right"
        raise PerfError(title, str(error).splitlines(), advice=advice) from error
    return {
        arch: {
            kernel: Kernel(kernel, row.rows, Speed(row.clocks, row.start, row.reads, row.adds))
            for kernel, row in rows.items()
        }
        for arch, rows in file.items()
    }


def speeds_text(found: Mapping[str, Iterable[Kernel]]) -> str:
    """The file."""
    lines = [HEADER]
    for arch, kernels in sorted(found.items()):
        lines += [f"[{arch}]", *map(_line, sorted(kernels, key=lambda kernel: kernel.name)), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _line(kernel: Kernel) -> str:
    speed = kernel.speed
    clocks = ", ".join(f"{each:.1f}" for each in speed.clocks)
    adds = f", adds = {speed.added_bytes}" if speed.added_bytes else ""
    return (
        f'"{kernel.name}" = {{rows = {kernel.rows}, clocks = [{clocks}], start = {speed.start:.1f}, '
        f"reads = {speed.row_bytes}{adds}}}"
    )
