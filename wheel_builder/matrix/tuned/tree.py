"""Tuning reports in the tree: signed off by a maintainer, with the rows that they are about."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from wheel_builder.base.errors import MatrixError
from wheel_builder.matrix.kept_reports import read_kept
from wheel_builder.matrix.machine_run import few, refuse, signer_problem, strictly
from wheel_builder.matrix.tuned.candidates import Settings, settings_problems
from wheel_builder.matrix.tuned.form import TuningReport, problems_of
from wheel_builder.tables.archs import code_of

FOLDER = Path("wheel_builder/matrix/tuned/reports")
LIKE = 0.5  # of the medians of a run that another run does not repeat


@dataclass(frozen=True)
class TriedRows:
    """Rows of a candidate, as they were published."""

    changes: str
    settings: tuple[Settings, ...]


@dataclass(frozen=True)
class SignedTuning:
    """A report in the tree. ``rows``: of its candidates, by kernel and id."""

    wheel: str
    wheel_sha256: str
    candidates_wheel: str
    signed_off_by: str
    rows: Mapping[str, Mapping[str, TriedRows]]
    report: TuningReport


_SIGNED = TypeAdapter(SignedTuning)


def to_json(found: SignedTuning) -> bytes:
    """As it is kept in the tree."""
    return _SIGNED.dump_json(found, indent=1) + b"\n"


def signed_tunings(checkout: Path) -> Mapping[str, SignedTuning]:
    """The reports in the tree by file name. Raises ``MatrixError`` with all problems."""
    taken, problems = read_kept(checkout / FOLDER, _taken)
    if problems:
        message = "tuning reports cannot be read"
        raise MatrixError(
            message, few(problems), advice="take them in again: scripts/wheel-builder report add FILE"
        )
    return taken


def _taken(data: bytes, before: Mapping[str, SignedTuning]) -> SignedTuning:
    found = strictly(_SIGNED, data)
    refuse([*_signed_problems(found), *problems_of(found.report, datetime.now(UTC))])
    refuse(filter(None, [repeated(found.report, before)]))
    return found


def _signed_problems(found: SignedTuning) -> Iterator[str]:
    if problem := signer_problem(found.signed_off_by):
        yield problem
    code = code_of(found.report.gfx)
    for name, kernel in found.report.kernels.items():
        own = found.rows.get(name, {})
        if own.keys() != kernel.candidates.keys():
            yield f"rows.{name}: expected those of its candidates"
        for row, rows in own.items():
            own_problems = settings_problems(code, name, row, rows.settings)
            yield from (f"rows.{name}.{row}: {problem}" for problem in own_problems)


def repeated(report: TuningReport, taken: Mapping[str, SignedTuning]) -> str:
    """Why a report says nothing new, "" if it does."""
    for name, other in taken.items():
        if (report.whose, report.candidates) == (other.report.whose, other.report.candidates):
            return f"a report of this machine and these candidates is in the tree already: {name}"
        if same_times(report, other.report):
            return f"its run is in the tree already, as another machine's: {name}"
    return ""


def same_times(one: TuningReport, other: TuningReport) -> bool:
    """Whether most medians of two reports are equal. Those of two runs differ."""
    medians = [_medians(report) for report in (one, other)]
    common = medians[0].keys() & medians[1].keys()
    alike = sum(medians[0][key] == medians[1][key] for key in common)
    return bool(common) and alike >= LIKE * len(common)


def _medians(report: TuningReport) -> Mapping[tuple[object, ...], float]:
    return {
        (name, each.call, row): times.ms
        for name, kernel in report.kernels.items()
        for each in kernel.bins
        for row, times in each.times.items()
    }
