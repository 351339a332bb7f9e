"""Reports of ``python -m flash_attn_rocm selftest`` from machines with an AMD GPU, kept in ``reports/``.

Users send them, so their content is untrusted: it is read strictly, and a maintainer signs it off.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from wheel_builder.base.errors import MatrixError
from wheel_builder.base.words import line_problem
from wheel_builder.matrix.kept_reports import read_kept
from wheel_builder.matrix.machine_run import (
    MOST_SECONDS,
    MachineRun,
    bounded,
    refuse,
    run_problems,
    signer_problem,
    strictly,
    visible_name,
)
from wheel_builder.matrix.reported import error_problem, same_run
from wheel_builder.tables.row_ids import LENGTH

FOLDER = Path("wheel_builder/matrix/reports")
SCHEMA = 1
MOST_BYTES = 1 << 20
# More than any call of the suite is allowed by rule.py: 84 on gfx950, of gradients of like bf16 values
# (tests/release/test_verify.py compares).
MOST_ALLOWED = 128.0
MOST_LSE = 1e-5  # rule.py's LSE_RELATIVE
ROUNDED = 0.001  # seconds, as selftest writes them
ROW = re.compile(rf"([0-9a-f]{{{LENGTH}}})?")


@dataclass(frozen=True)
class KernelShown:
    """Results of one kernel's calls.

    ``row``: the id of its rows in the table of tiles. Empty for kernels without rows, and in reports of older
    wheels.
    """

    calls: int
    failed: int
    failures: tuple[str, ...]
    worst_error: float
    allowed: float
    worst_lse_error: float
    median_ms: float
    row: str = ""


@dataclass(frozen=True)
class Report(MachineRun):
    """A report as ``selftest`` writes it."""

    schema: int
    kernels: Mapping[str, KernelShown]


@dataclass(frozen=True)
class SignedReport:
    """A report in the tree: its wheel, and the maintainer who accepted it."""

    wheel: str
    wheel_sha256: str
    signed_off_by: str
    report: Report


@dataclass(frozen=True)
class HardwareRun:
    """The content of a report shown on pages."""

    arch: str
    device: str
    wheel: str
    wheel_sha256: str
    driver: str
    torch: str
    time: str
    kernels: int
    failed: int
    signed_off_by: str

    @property
    def words(self) -> str:
        every, where = f"{self.kernels} kernels", f"on {self.device}, {self.wheel}, PyTorch {self.torch}"
        shown = f"{self.failed} of {every} failed" if self.failed else f"all {every} passed"
        return f"{shown} {where}, {self.time[:10]}, {self.signed_off_by}"


_REPORT = TypeAdapter(Report)
_SIGNED = TypeAdapter(SignedReport)


def parse_report(data: bytes, now: datetime) -> Report:
    """A report sent by a user. Raises ``ValueError`` with all of its problems."""
    found = bounded(_REPORT, data, MOST_BYTES)
    refuse(problems_of(found, now))
    return found


def problems_of(report: Report, now: datetime) -> Iterator[str]:
    """Reasons against showing a report."""
    if report.schema != SCHEMA:
        yield f"schema: expected {SCHEMA}, found {report.schema}"
    yield from run_problems(report, now, "selftest")
    yield from _length_problems(report)
    if problem := error_problem(k.worst_error for k in report.kernels.values() if k.failed < k.calls):
        yield problem
    for name, kernel in report.kernels.items():
        yield from (f"kernels.{visible_name(name)}: {problem}" for problem in _kernel_problems(name, kernel))


def signed(report: Report, wheel: str, wheel_sha256: str, signed_off_by: str) -> SignedReport:
    """A report about a wheel. Raises ``ValueError`` unless the name is one line with an address."""
    refuse(filter(None, [signer_problem(signed_off_by)]))
    return SignedReport(wheel, wheel_sha256, signed_off_by, report)


def to_json(found: SignedReport) -> bytes:
    """As it is kept in the tree."""
    return _SIGNED.dump_json(found, indent=1) + b"\n"


def read_reports(checkout: Path) -> tuple[HardwareRun, ...]:
    """The reports in the tree for pages, the newest first. Raises ``MatrixError`` with all problems."""
    runs = (_run(found) for found in signed_reports(checkout).values())
    return tuple(sorted(runs, key=lambda run: run.time, reverse=True))


def signed_reports(checkout: Path) -> Mapping[str, SignedReport]:
    """The reports in the tree by file name. Raises ``MatrixError`` with all problems."""
    taken, problems = read_kept(checkout / FOLDER, _taken)
    if problems:
        message = "reports from hardware cannot be read"
        raise MatrixError(
            message, problems, advice="take them in again: scripts/wheel-builder report add FILE"
        )
    return taken


def _taken(data: bytes, before: Mapping[str, SignedReport]) -> SignedReport:
    found = strictly(_SIGNED, data)
    again = signed(found.report, found.wheel, found.wheel_sha256, found.signed_off_by)
    refuse(problems_of(again.report, datetime.now(UTC)))
    refuse(filter(None, [counted_twice(found.report, before)]))
    return found


def measured_rows(reports: Iterable[Report]) -> Mapping[str, int]:
    """How many reports measured a kernel's rows, by their id. A kernel with a failed call is not counted."""
    found: Counter[str] = Counter()
    for report in reports:
        found.update({kernel.row for kernel in report.kernels.values() if kernel.row and not kernel.failed})
    return dict(sorted(found.items()))


def counted_twice(report: Report, taken: Mapping[str, SignedReport]) -> str:
    """Why a report repeats an earlier report's run, "" for a new run."""
    found = [name for name, other in taken.items() if same_run(vars(report), vars(other.report))]
    return f"its run is in the tree already: {found[0]}" if found else ""


def _run(found: SignedReport) -> HardwareRun:
    report = found.report
    return HardwareRun(
        arch=report.gfx, device=report.device, wheel=found.wheel, wheel_sha256=found.wheel_sha256,
        driver=report.driver, torch=report.torch, time=report.time, kernels=len(report.kernels),
        failed=sum(kernel.failed > 0 for kernel in report.kernels.values()),
        signed_off_by=found.signed_off_by.partition(" <")[0],
    )  # fmt: skip


def _length_problems(report: Report) -> Iterator[str]:
    """Medians that the run has no time for."""
    # Half of a kernel's calls take at least its median.
    least = sum(kernel.median_ms * kernel.calls / 2 for kernel in report.kernels.values()) / 1e3
    if 0 < report.seconds <= MOST_SECONDS and not least <= report.seconds + ROUNDED:
        yield f"seconds: the kernels' medians add up to {least:.3g} at least, found {report.seconds:g}"


def _kernel_problems(name: str, kernel: KernelShown) -> Iterator[str]:
    if not re.fullmatch(r"fa_\w{1,77}", name, re.ASCII):
        yield "it is no name of a kernel"
    if not ROW.fullmatch(kernel.row):
        yield f"row: expected {LENGTH} hexadecimal digits or nothing"
    if not kernel.calls > 0 or not 0 <= kernel.failed <= kernel.calls:
        yield "expected at least one call, and no more failed ones than calls"
    if len(kernel.failures) > kernel.failed or bool(kernel.failures) != bool(kernel.failed):
        yield "expected words of failures where calls failed, and only there"
    yield from (f"failures: {problem}" for problem in map(line_problem, kernel.failures) if problem)
    numbers = {key: value for key, value in asdict(kernel).items() if isinstance(value, float)}
    yield from (f"{key}: expected 0 or more" for key, value in numbers.items() if not 0 <= value < math.inf)
    if kernel.failed < kernel.calls and not kernel.median_ms > 0:
        yield "median_ms: expected more than 0, as a call takes time"
    if kernel.allowed > MOST_ALLOWED:
        yield f"allowed: the suite allows no call more than {MOST_ALLOWED:g}, found {kernel.allowed:g}"
    if kernel.failed:
        return
    if not kernel.worst_error <= kernel.allowed:
        yield "no call failed, and the worst error is more than allowed"
    if kernel.worst_lse_error > MOST_LSE:
        yield f"no call failed, and worst_lse_error is more than the {MOST_LSE:g} that the rule allows"
