"""Every candidate of a distribution, checked and executed on the ISA emulator: its verification record."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from wheel_builder.audit.candidates import Opened, audit_candidates
from wheel_builder.base.errors import VerifyError
from wheel_builder.base.store import Artifact
from wheel_builder.extras.perf.run import Bench, subjects
from wheel_builder.extras.tune.measuring import Results, executed
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.extras.tune.run import kernel_named, tools_of
from wheel_builder.extras.tune.works import works
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.matrix.model import Matrix
from wheel_builder.matrix.tuned.candidates import Candidate
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import builder_image
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.steps import Step, Steps
from wheel_builder.pipeline.verification import build_emulator, job_of
from wheel_builder.provenance.attest import refresh_provenance
from wheel_builder.provenance.records import write_record
from wheel_builder.provenance.verification import EMULATED
from wheel_builder.tables.tiles import Workgroup

MOST_STEP = 1024  # rows of a workgroup's tile
NAMED = 5


def verification(steps: Steps, files: Sequence[Path], matrix: Matrix) -> list[Step[Mapping[str, Any]]]:
    """Verify finished distributions, write their records, and name these in their statements."""
    made = []
    for file in files:
        job = job_of(file, matrix)
        builder = builder_image(steps, job)
        emulator = build_emulator(steps, job, builder)
        work = partial(_verified, file, steps.context, builder, emulator)
        made.append(steps.add(f"candidates {file.name}", work, job=job.id, weight=60, log="candidates"))
    return made


def _verified(
    file: Path, context: RunContext, builder: Step[Artifact], emulator: Step[Artifact], shown: Shown
) -> Mapping[str, Any]:
    bench, results = tools_of(context, builder.result, emulator.result)
    record = record_of(audit_candidates(file), bench, results)
    shown.note(f"{file.name}: {words_of(record)}")
    write_record(file, record)
    refresh_provenance(file)
    return record


def record_of(opened: Opened, bench: Bench, results: Results) -> Mapping[str, Any]:
    """The record: what was executed of each candidate. Raises ``VerifyError`` if one is wrong."""
    arch = opened.listed.arch
    found = {
        name: {
            row: _executed(kernel_named(arch, name), kernel.candidates[row], code, bench, results)
            for row, code in opened.codes[name].items()
        }
        for name, kernel in opened.listed.kernels.items()
    }
    wrong = [
        f"{name}, row {row}: {problem}"
        for name, rows in found.items()
        for row, each in rows.items()
        for problem in each["findings"]
    ]
    if wrong:
        more = [f"and {len(wrong) - NAMED} more"] if len(wrong) > NAMED else []
        lines = "\n".join(f"  - {line}" for line in (*wrong[:NAMED], *more))
        message = f"{opened.wheel.path.name} has wrong candidates; no record was written\n{lines}"
        raise VerifyError(message, advice="make it again without them: scripts/wheel-builder tuning-wheel")
    return {
        "wheel": opened.wheel.path.name,
        "sha256": opened.wheel.sha256,
        "archs": {},
        "candidates": found,
    }


def _executed(
    kernel: Kernel, candidate: Candidate, code: bytes, bench: Bench, results: Results
) -> dict[str, Any]:
    """The results of a candidate, whose list is untrusted."""
    calls = works()[kernel.op].said[-1].partition(". ")[0]
    return {
        "sha256": hashlib.sha256(code).hexdigest(),
        "numerics": EMULATED,
        "calls": [calls],
        "checked": True,
        "findings": findings_of(kernel, candidate, code, bench, results),
    }


def findings_of(
    kernel: Kernel, candidate: Candidate, code: bytes, bench: Bench, results: Results
) -> list[str]:
    """What is wrong with it: a failed static check, or its results."""
    plain = candidate.settings[0]
    step = plain.get("keys") or plain.get("queries")
    if not isinstance(step, int) or not 0 < step <= MOST_STEP:
        return [f"its tile has {step} rows, expected 1 to {MOST_STEP}"]
    [subject] = subjects([CodeObject(kernel.arch, code)], bench)
    wrong = executed(subject, kernel, Workgroup(candidate.rows, candidate.threads), step, results)
    return [wrong] if wrong else []


def words_of(record: Mapping[str, Any]) -> str:
    """The record in words."""
    kernels = record["candidates"]
    return f"{sum(map(len, kernels.values()))} candidates of {len(kernels)} kernels {EMULATED}"
