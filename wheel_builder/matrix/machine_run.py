"""A run on a user's machine: what the reports of all commands say about it, and what contradicts itself.

Users send reports, so their content is untrusted. Pure.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from wheel_builder.base.strict_json import read_json
from wheel_builder.base.words import line_problem
from wheel_builder.matrix.reported import driver_problem, torch_problems
from wheel_builder.tables.archs import known_gpus

ON_HARDWARE = "run on hardware"
# The project's first week, and more seconds than any command takes.
FIRST_TIME, MOST_SECONDS = datetime(2026, 11, 16, tzinfo=UTC), 86_400.0
DIGEST = re.compile(r"[0-9a-f]{64}")
LINES = ("how", "device", "arch", "os", "python", "torch", "torch_build", "package")
MOST_PROBLEMS = 40  # said of one report
T = TypeVar("T")


@dataclass(frozen=True)
class MachineRun:
    """The machine, its wheel and the run."""

    how: str
    time: str
    device: str
    arch: str
    compute_units: int
    driver: str
    os: str
    python: str
    torch: str
    torch_build: str
    package: str
    library_sha256: str
    library_as_installed: bool
    complete: bool
    seconds: float

    @property
    def gfx(self) -> str:
        """The arch without its target features."""
        return self.arch.partition(":")[0]


def run_problems(run: MachineRun, now: datetime, command: str) -> Iterator[str]:
    """Reasons against showing a report of ``command``, except for its kernels."""
    if run.how != ON_HARDWARE:
        yield f"how: expected {ON_HARDWARE!r}, found {run.how[:80]!r}"
    if not run.complete:
        yield f"complete: only some kernels or calls were asked for; run {command} without options"
    if not run.library_as_installed:
        yield "library_as_installed: the library is not the one that the wheel brought"
    if not DIGEST.fullmatch(run.library_sha256):
        yield "library_sha256: expected 64 hexadecimal digits"
    yield from _time_problems(run.time, now)
    if gpu := known_gpus().get(run.gfx):
        most, found = gpu.compute_units, run.compute_units
        if not 0 < found <= most:
            yield f"compute_units: expected 1 to {most}, as GPUs of {gpu.name} have, found {found}"
    if not 0 < run.seconds <= MOST_SECONDS:
        yield f"seconds: expected more than 0 and at most {MOST_SECONDS:.0f}, found {run.seconds:g}"
    for name in (*LINES, *(["driver"] if run.driver else [])):
        if problem := line_problem(getattr(run, name)):
            yield f"{name}: {problem}"
    yield from filter(None, [driver_problem(run.driver)])
    yield from torch_problems(run.torch, run.torch_build)


def _time_problems(time: str, now: datetime) -> Iterator[str]:
    try:
        when = datetime.fromisoformat(time)
    except ValueError:
        yield f"time: expected ISO 8601, found {time[:40]!r}"
        return
    if when.tzinfo is None or when > now:
        yield "time: expected one in the past with its zone"
    elif when < FIRST_TIME:
        yield f"time: expected one since {FIRST_TIME:%Y-%m-%d}, when the project began, found {time[:40]!r}"


def signer_problem(name: str) -> str:
    """Why ``name`` signs nothing off, "" for one line with an address."""
    if line_problem(name) or not re.fullmatch(r"[^<>]+ <[^<>@\s]+@[^<>@\s]+>", name):
        return f"--signed-off-by: expected 'Name <name@host>', found {name!r}"
    return ""


def visible_name(name: str) -> str:
    """A printable form of a name in a report, which is untrusted."""
    return name if re.fullmatch(r"\w{1,80}", name, re.ASCII) else repr(name)[:80]


def refuse(problems: Iterable[str]) -> None:
    """Raises ``ValueError`` with the problems, if there are any."""
    if found := list(problems):
        raise ValueError("; ".join(few(found)))


def few(problems: list[str]) -> list[str]:
    """As many problems as a terminal shows, and the number of the others."""
    left = len(problems) - MOST_PROBLEMS
    return [*problems[:MOST_PROBLEMS], *([f"{left} more problems"] if left > 0 else [])]


def bounded(form: TypeAdapter[T], data: bytes, most: int, what: str = "it") -> T:
    """As ``strictly``, of at most so many bytes."""
    if len(data) > most:
        message = f"{what} has {len(data)} bytes, expected at most {most}"
        raise ValueError(message)
    return strictly(form, data)


def strictly(form: TypeAdapter[T], data: bytes) -> T:
    """The value of a JSON text. Raises ``ValueError`` with all problems."""
    read_json(data)  # refuses what the form's parser takes, such as repeated keys
    try:
        return form.validate_json(data, strict=True, extra="forbid")
    except ValidationError as error:
        shown = error.errors(include_url=False, include_input=False)
        refuse(f"{'.'.join(map(_place, one['loc']))}: {one['msg']}" for one in shown)
        raise


def _place(step: int | str) -> str:
    return str(step) if isinstance(step, int) else visible_name(step)
