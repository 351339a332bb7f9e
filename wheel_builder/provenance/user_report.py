"""Adds a user's report of ``selftest`` to the tree, for its wheel."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from wheel_builder.base.errors import PublishError
from wheel_builder.files.wheels.wheelfile import WheelFile
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.hardware import (
    FOLDER,
    Report,
    counted_twice,
    parse_report,
    signed,
    signed_reports,
    to_json,
)
from wheel_builder.matrix.machine_run import visible_name
from wheel_builder.provenance.reported_wheel import row_ids, runs_on, wheel_of, wheel_problems
from wheel_builder.tables.archs import code_of

TITLE = "the report was not taken"
# The calls made by selftest for each kernel of each arch, by number.
CALLS = "flash_attn_rocm/suite/corpus.json"


class _Like(BaseModel):
    """The corpus of an arch: the calls of the arch ``like``, with the differing kernels in ``kernels``."""

    like: str
    kernels: dict[str, list[int]]


# An arch may have the name of another one, whose calls it shares.
_CALLS = TypeAdapter(dict[str, _Like | dict[str, list[int]] | str])
ADVICE = "ask its sender to run selftest again, without options, on the wheel as it was published"


def add_report(
    file: Path,
    wheels: Iterable[Path],
    checkout: Path,
    *,
    catalogue: Catalogue,
    signed_off_by: str,
    now: datetime,
) -> Path:
    """Check a report against its wheel among ``wheels``, the wheel's statement, and ``catalogue``.

    Repeated reports are refused. Returns the path of the report in the tree.

    Raises ``PublishError`` with all problems, before it writes anything.
    """
    try:
        report = parse_report(file.read_bytes(), now)
        wheel = wheel_of(report, wheels)
        found = signed(report, wheel.path.name, wheel.sha256, signed_off_by)
    except (OSError, ValueError) as error:
        raise PublishError(TITLE, [f"{file.name}: {error}"], advice=ADVICE) from error
    problems = [
        *wheel_problems(report, wheel, catalogue),
        *_against(report, wheel),
        *filter(None, [counted_twice(report, signed_reports(checkout))]),
    ]
    if problems:
        raise PublishError(TITLE, [f"{file.name}: {problem}" for problem in problems], advice=ADVICE)
    data = to_json(found)
    path = checkout / FOLDER / f"{report.gfx}-{wheel.sha256[:12]}-{hashlib.sha256(data).hexdigest()[:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _calls_of(code: str, wheel: WheelFile) -> Mapping[str, int]:
    """The number of calls of each kernel in the wheel's suite. Raises ``KeyError`` and ``ValueError``."""
    every = _CALLS.validate_json(wheel.files[CALLS])
    found = every[code]
    own = found.kernels if isinstance(found, _Like) else {}
    shared = found.like if isinstance(found, _Like) else found
    numbers = every[shared] if isinstance(shared, str) else shared
    if not isinstance(numbers, dict):
        raise KeyError(code)
    return {name: len(each) for name, each in (numbers | own).items() if each}


def _row_problems(report: Report, wheel: WheelFile, code: str) -> Iterator[str]:
    """Row ids that the wheel lacks for their kernel."""
    ids = row_ids(wheel, code)
    for name, kernel in sorted(report.kernels.items()):
        if kernel.row and kernel.row not in ids.get(name, ()):
            yield f"kernels.{visible_name(name)}: its row in the wheel is not {kernel.row[:20]!r}"


def _against(report: Report, wheel: WheelFile) -> Iterator[str]:
    """Contradictions of the report's kernels to the wheel's suite."""
    if not runs_on(report, wheel):
        return
    code = code_of(report.gfx)
    try:
        calls = _calls_of(code, wheel)
    except (KeyError, ValueError):
        yield f"kernels: the wheel has no calls for {code} in {CALLS}"
        return
    if missing := sorted(calls.keys() - report.kernels.keys()):
        yield f"kernels: {len(missing)} of the wheel's were not run, such as {missing[0]}"
    if unknown := sorted(report.kernels.keys() - calls.keys()):
        yield f"kernels: the wheel's suite has no {visible_name(unknown[0])}"
    yield from _row_problems(report, wheel, code)
    for name in sorted(calls.keys() & report.kernels.keys()):
        if (found := report.kernels[name].calls) != calls[name]:
            yield f"kernels.{name}: expected the {calls[name]} calls of the wheel's suite, found {found}"
