"""Adds a user's report of ``tune`` to the tree, for its wheel and its distribution of candidates."""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from wheel_builder.base.errors import PublishError, WheelBuilderError
from wheel_builder.base.plain import read_plain
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_wheel
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.machine_run import few, refuse, signer_problem, visible_name
from wheel_builder.matrix.tuned.candidates import FILE, Candidates, KernelCandidates, parse_candidates
from wheel_builder.matrix.tuned.form import MOST_BYTES, KernelTuned, TuningReport, parse_tuning
from wheel_builder.matrix.tuned.tree import FOLDER, SignedTuning, TriedRows, repeated, signed_tunings, to_json
from wheel_builder.provenance.reported_wheel import row_ids, wheel_of, wheel_problems
from wheel_builder.tables.archs import code_of

PACKAGE = "flash_attn_rocm_tuning_"  # and the arch
TITLE = "the tuning report was not taken"
ADVICE = "ask its sender to run `python -m flash_attn_rocm tune` again, without options, on published wheels"


def is_tuning(file: Path) -> bool:
    """Whether a report is one of ``tune``, by a key of its own. Others are those of ``selftest``."""
    try:
        return b'"report"' in read_plain(file, MOST_BYTES)
    except OSError:
        return False


def add_tuning(
    file: Path,
    wheels: Iterable[Path],
    checkout: Path,
    *,
    catalogue: Catalogue,
    signed_off_by: str,
    now: datetime,
) -> Path:
    """Check a report against its wheel and its candidates among ``wheels``, and ``catalogue``.

    A second report of a machine about the same candidates is refused. Returns the path in the tree.

    Raises ``PublishError`` with all problems, before it writes anything.
    """
    paths = sorted(wheels)
    try:
        refuse(filter(None, [signer_problem(signed_off_by)]))
        report = parse_tuning(read_plain(file, MOST_BYTES), now)
        wheel, (name, candidates) = wheel_of(report, paths), candidates_of(report, paths)
    except (OSError, ValueError) as error:
        raise PublishError(TITLE, [f"{file.name}: {error}"], advice=ADVICE) from error
    problems = [
        *wheel_problems(report, wheel, catalogue),
        *_against(report, candidates, wheel),
        *filter(None, [repeated(report, signed_tunings(checkout))]),
    ]
    if problems:
        raise PublishError(TITLE, [f"{file.name}: {each}" for each in few(problems)], advice=ADVICE)
    data = to_json(
        SignedTuning(wheel.path.name, wheel.sha256, name, signed_off_by, _rows(report, candidates), report)
    )
    path = checkout / FOLDER / f"{report.gfx}-{wheel.sha256[:12]}-{hashlib.sha256(data).hexdigest()[:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def candidates_of(report: TuningReport, wheels: Iterable[Path]) -> tuple[str, Candidates]:
    """The distribution of the report's candidates, and its name. Raises ``ValueError`` without one."""
    seen = [path for path in wheels if path.name.startswith(PACKAGE)]
    for path in seen:
        try:
            wheel = read_wheel(path, max_mib=MAX_READ_MIB)
        except WheelBuilderError:
            continue  # broken
        data = wheel.files.get(f"{path.name.partition('-')[0]}/{FILE}", b"")
        if hashlib.sha256(data).hexdigest() == report.candidates:
            return path.name, parse_candidates(data)
    names = ", ".join(dict.fromkeys(path.name for path in seen)) or "none"
    message = f"no distribution has its candidates, sha256 {report.candidates}; looked at: {names}"
    raise ValueError(message)


def _against(report: TuningReport, candidates: Candidates, wheel: WheelFile) -> Iterator[str]:
    """Contradictions to the candidates, and of these to the wheel."""
    if report.library_sha256 not in candidates.wheel.libraries:
        version = candidates.wheel.version
        yield f"candidates: they are for flash-attn-rocm {version}, not for this wheel's library"
    code = code_of(report.gfx)
    if candidates.arch != code:
        yield f"candidates: they are for {candidates.arch}, and {report.gfx} runs the code of {code}"
        return
    ids = row_ids(wheel, code)
    for name, kernel in sorted(report.kernels.items()):
        if name not in candidates.kernels:
            yield f"kernels.{visible_name(name)}: it has no candidates"
            continue
        if kernel.shipped not in ids.get(name, ()):
            yield f"kernels.{name}: its row in the wheel is not {kernel.shipped}"
        yield from (f"kernels.{name}: {each}" for each in _kernel_problems(kernel, candidates.kernels[name]))


def _kernel_problems(kernel: KernelTuned, of: KernelCandidates) -> Iterator[str]:
    if kernel.shipped != of.shipped:
        yield f"shipped: the candidates are for rows {of.shipped}, found {kernel.shipped}"
    if unknown := sorted(kernel.candidates.keys() - of.candidates.keys()):
        yield f"candidates: none has the rows {', '.join(unknown)}"
    if missing := sorted(of.candidates.keys() - kernel.candidates.keys()):
        yield f"candidates: {', '.join(missing)} were not tried"


def _rows(report: TuningReport, candidates: Candidates) -> dict[str, dict[str, TriedRows]]:
    return {
        name: {
            row: TriedRows(each.changes, each.settings)
            for row, each in candidates.kernels[name].candidates.items()
        }
        for name in report.kernels
    }
