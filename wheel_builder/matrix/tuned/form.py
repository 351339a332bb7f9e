"""A report of ``python -m flash_attn_rocm tune``: its form, and what contradicts itself. Pure.

Users send reports, so their content is untrusted. Winners that a report names are read by nobody: they follow
from its times again.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from fractions import Fraction
from typing import Literal

from pydantic import TypeAdapter

from wheel_builder.base.words import line_problem
from wheel_builder.matrix.machine_run import (
    DIGEST,
    MOST_SECONDS,
    MachineRun,
    bounded,
    refuse,
    run_problems,
    visible_name,
)
from wheel_builder.matrix.tuned.calls import Call
from wheel_builder.matrix.tuned.candidates import KERNEL, MOST_CANDIDATES, MOST_KERNELS, ROW
from wheel_builder.tables.archs import arch_named, code_of, known_archs
from wheel_builder.tables.kinds import BACKWARD, PACKED, known_kinds
from wheel_builder.tables.tuning import exact

FORMAT, REPORT = 1, "tuning"
MOST_BYTES, MOST_BINS, MOST_WORDS, MOST_RUNS = 4 << 20, 64, 300, 1000
MOST_LENGTH, MOST_HEADS, MOST_BATCH = 1 << 20, 1024, 1 << 20
MOST_CLOCK = 1e5
# A nanosecond and a day: quotients of such times are finite.
LEAST_MS, MOST_MS = 1e-6, MOST_SECONDS * 1e3
MACHINE = re.compile(r"([0-9a-f]{16})?")
# Boost clocks are above those on paper, by less than this factor.
ABOVE_PEAK = 2.0
GRADIENTS = 2.5  # FLOP of a backward, in those of its forward


@dataclass(frozen=True)
class Times:
    """Milliseconds of a row in a bin: the median, the least and the most of ``runs``."""

    ms: float
    least: float
    most: float
    runs: int


@dataclass(frozen=True)
class Bin:
    """A call, with the times of rows by their id.

    ``length``: of the keys. ``width``: heads of q for each of k.
    """

    kind: Literal["forward", "backward", "decode"]
    length: int
    causal: bool
    width: int
    mask: Literal["", "bool", "bias"]
    dtype: str
    head_dim: int
    batch: int
    heads: int
    times: Mapping[str, Times]
    sdpa_ms: float | None
    winner: str

    @property
    def call(self) -> Call:
        """All of the call. Bins of two machines with equal calls are compared."""
        return Call(*(getattr(self, field) for field in Call._fields))

    def speedup(self, before: str, after: str) -> Fraction:
        """How many times as fast ``after`` is, by the decimal numbers of the report."""
        return exact(self.times[before].ms) / exact(self.times[after].ms)


@dataclass(frozen=True)
class Tried:
    """What became of a candidate."""

    state: Literal["timed", "wrong", "failed", "endless"]
    words: str


@dataclass(frozen=True)
class Clocks:
    """As the driver tells them, None if it does not."""

    gpu_mhz: float | None
    memory_mhz: float | None
    watts: float | None
    celsius: float | None


@dataclass(frozen=True)
class BothClocks:
    """Before and after the run."""

    before: Clocks
    after: Clocks


@dataclass(frozen=True)
class KernelTuned:
    """A kernel: the id of the wheel's rows, and its candidates."""

    shipped: str
    winner: str
    candidates: Mapping[str, Tried]
    bins: tuple[Bin, ...]

    @property
    def timed(self) -> tuple[str, ...]:
        return tuple(row for row, tried in self.candidates.items() if tried.state == "timed")


@dataclass(frozen=True)
class TuningReport(MachineRun):
    """A report as ``tune`` writes it. ``candidates``: the sha256 of candidates.json.

    ``machine``: a digest of the GPU's own number, "" without one. ``seconds``: of the last run, as an
    interrupted one goes on. Kernels that do not fit into the GPU's memory are left out.
    """

    format: int
    report: str
    machine: str
    candidates: str
    clocks: BothClocks
    kernels: Mapping[str, KernelTuned]

    @property
    def whose(self) -> str:
        """Of all GPUs of one name without numbers, one counts."""
        return self.machine or self.device


_FORM = TypeAdapter(TuningReport)


def parse_tuning(data: bytes, now: datetime) -> TuningReport:
    """A report sent by a user. Raises ``ValueError`` with all of its problems."""
    found = bounded(_FORM, data, MOST_BYTES)
    refuse(problems_of(found, now))
    return found


def problems_of(report: TuningReport, now: datetime) -> Iterator[str]:
    """Reasons against keeping a report."""
    if (report.format, report.report) != (FORMAT, REPORT):
        yield f"format, report: expected {FORMAT}, {REPORT!r}; found {report.format}, {report.report[:40]!r}"
    yield from run_problems(report, now, "tune")
    if not MACHINE.fullmatch(report.machine):
        yield "machine: expected 16 hexadecimal digits or nothing"
    if not DIGEST.fullmatch(report.candidates):
        yield "candidates: expected 64 hexadecimal digits"
    for when, clocks in asdict(report.clocks).items():
        for name, value in clocks.items():
            if value is not None and not 0 <= value <= MOST_CLOCK:
                yield f"clocks.{when}.{name}: expected 0 to {MOST_CLOCK:g}, found {value:g}"
    if not 1 <= len(report.kernels) <= MOST_KERNELS:
        yield f"kernels: expected 1 to {MOST_KERNELS}, found {len(report.kernels)}"
        return
    for name, kernel in report.kernels.items():
        own = _kernel_problems(report, name, kernel)
        yield from (f"kernels.{visible_name(name)}: {problem}" for problem in own)


def _kernel_problems(report: TuningReport, name: str, kernel: KernelTuned) -> Iterator[str]:
    parsed = KERNEL.fullmatch(name)
    if parsed is None or parsed["op"] not in known_kinds():
        yield "it is no name of a kernel"
        return
    if not ROW.fullmatch(kernel.shipped) or kernel.shipped in kernel.candidates:
        yield "shipped: expected the id of rows that are no candidate"
    if not 1 <= len(kernel.candidates) <= MOST_CANDIDATES:
        yield f"candidates: expected 1 to {MOST_CANDIDATES}, found {len(kernel.candidates)}"
        return
    for row, tried in kernel.candidates.items():
        yield from (f"candidates.{visible_name(row)}: {problem}" for problem in _tried_problems(row, tried))
    if kernel.winner not in {kernel.shipped, *kernel.timed}:
        yield "winner: expected the id of shipped rows or of a timed candidate"
    if len(kernel.bins) > MOST_BINS or (not kernel.bins and kernel.timed):
        yield f"bins: expected 1 to {MOST_BINS}, found {len(kernel.bins)}"
        return
    if any(count > 1 for count in Counter(each.call for each in kernel.bins).values()):
        yield "bins: expected every call once"
    kind, dtype = known_kinds()[parsed["op"]], parsed["dtype"]
    calls = "backward" if kind.call == BACKWARD else "decode" if kind.rows == PACKED else "forward"
    for number, each in enumerate(kernel.bins):
        if (each.kind, each.dtype, each.head_dim) != (calls, dtype, int(parsed["head_dim"])):
            yield f"bins.{number}: it is no call of this kernel"
        else:
            own = (*_bin_problems(kernel, each), *_speed_problems(report, each))
            yield from (f"bins.{number}: {problem}" for problem in own)


def _tried_problems(row: str, tried: Tried) -> Iterator[str]:
    if not ROW.fullmatch(row):
        yield "expected the id of rows"
    if bool(tried.words) == (tried.state == "timed"):
        yield "words: expected some of candidates without times, and only of them"
    if tried.words and (problem := line_problem(tried.words)):
        yield f"words: {problem}"
    if len(tried.words) > MOST_WORDS:
        yield f"words: expected at most {MOST_WORDS} characters"


def _bin_problems(kernel: KernelTuned, each: Bin) -> Iterator[str]:
    most = {"length": MOST_LENGTH, "width": MOST_HEADS, "batch": MOST_BATCH, "heads": MOST_HEADS}
    for field, limit in most.items():
        if not 1 <= (value := getattr(each, field)) <= limit:
            yield f"{field}: expected 1 to {limit}, found {value:.6g}"
            return
    if each.heads % each.width:
        yield f"width: {each.heads} heads cannot share keys by {each.width}"
    if each.times.keys() != {kernel.shipped, *kernel.timed}:
        yield "times: expected those of the shipped rows and of all timed candidates"
        return
    if each.sdpa_ms is not None and not LEAST_MS <= each.sdpa_ms <= MOST_MS:
        yield f"sdpa_ms: expected {LEAST_MS:g} to {MOST_MS:g}, found {each.sdpa_ms:g}"
    for row, times in each.times.items():
        if not LEAST_MS <= times.least <= times.ms <= times.most <= MOST_MS:
            yield f"times.{row}: expected {LEAST_MS:g} <= least <= ms <= most <= {MOST_MS:g}"
        if not 1 <= times.runs <= MOST_RUNS:
            yield f"times.{row}.runs: expected 1 to {MOST_RUNS}, found {times.runs}"
    if each.winner not in each.times or each.times[each.winner].ms > min(t.ms for t in each.times.values()):
        yield "winner: expected the row with the least median"


def _speed_problems(report: TuningReport, each: Bin) -> Iterator[str]:
    """Times below those of a GPU that multiplies at its peak. Masks may hide any keys."""
    code = code_of(report.gfx)
    if each.mask or code not in known_archs():
        return
    arch = arch_named(code)
    queries = 1 if each.kind == "decode" else each.length
    pairs = queries * each.length / (2 if each.causal and queries > 1 else 1)
    flop = 4.0 * each.batch * each.heads * pairs * each.head_dim
    flop *= GRADIENTS if each.kind == "backward" else 1
    peak = ABOVE_PEAK * arch.isa.peak_flop * max(report.compute_units, 1) * arch.model.clock
    fastest = min((times.least for times in each.times.values()), default=math.inf)
    if fastest < flop / peak * 1e3:
        units = f"{report.compute_units} compute units of {code}"
        yield f"times: {fastest:g} ms is faster than {units} can multiply"
