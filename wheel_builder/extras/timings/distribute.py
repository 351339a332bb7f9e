"""``scripts/wheel-builder tuning-wheel``: from the proposals of ``tune`` to a distribution of candidates.

Each candidate is compiled and executed as in a search. Then the finished file is verified by itself.
"""

import hashlib
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from wheel_builder.audit.candidates import audit_candidates
from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import TuneError
from wheel_builder.base.store import Artifact
from wheel_builder.build.source import read_source
from wheel_builder.build.wheel_inputs import read_inputs
from wheel_builder.extras.timings.distribution import MOST, Chosen, For, OfKernel, wheel_of, worth_timing
from wheel_builder.extras.timings.verify import record_of
from wheel_builder.extras.timings.wanted import FILE, read_wanted, wanted_for
from wheel_builder.extras.tune.rows import NONE, Changes, Kernel, changed, changes_named, rows_of, words_of
from wheel_builder.extras.tune.run import (
    BATCH,
    FOLDER,
    Tuning,
    Wishes,
    attempt,
    begun,
    execute,
    kernel_named,
    tools_of,
    workgroup,
)
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY, for_windows, library_of
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_wheel
from wheel_builder.machine_code.disassembly.listing import list_code
from wheel_builder.machine_code.fake_hip.stage import build_fake_hip
from wheel_builder.machine_code.static_checks.check import check_listing
from wheel_builder.matrix.model import Job, Plan
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.shim import Wheels
from wheel_builder.pipeline.steps import UNCHANGED, Step, Steps
from wheel_builder.provenance.attest import finished_at, write_provenance
from wheel_builder.provenance.provenance import make_candidates_provenance, run_details
from wheel_builder.provenance.records import Demand, require_attachments, write_record
from wheel_builder.provenance.reported_wheel import row_ids
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import known_tiles

TITLE = "there are no candidates to distribute"
# Verdicts of a proposal on candidates that are worth no more time.
PASSED_OVER = ("today's", "refused", "the same code", "wrong results", "dominated")


def distribute(
    arch: str, wheels: Sequence[Path], plan: Plan, context: RunContext, to: Path, *, plain: bool | None
) -> Path:
    """The finished distribution in ``to``, of all proposals and of the repository. Raises ``TuneError``."""
    job = jobs_to_build(plan)[0]
    steps = begin(context, plan.package)
    builder = builder_image(steps, job)
    made = finish_candidates(steps, arch, lambda: wheels, job, builder, to)
    steps.run(plain=plain)
    return made.result


def of_release(
    archs: Sequence[str], steps: Steps, wheels: Wheels, job: Job, builder: Step[Artifact], to: Path
) -> list[Step[Path]]:
    """Plan the distributions for a job's wheels: those of ``archs`` that they have code for."""
    mine = [arch for arch in archs if arch in job.archs]
    return [finish_candidates(steps, arch, wheels, job, builder, to) for arch in mine]


def finish_candidates(
    steps: Steps, arch: str, wheels: Wheels, job: Job, builder: Step[Artifact], to: Path
) -> Step[Path]:
    """Plan a distribution: chosen, built, verified, with record and statement in ``to``."""
    work = partial(_finish, arch, wheels, job, steps.context, builder, to)
    return steps.add(f"candidates {arch}", work, job=job.id, weight=90, log=f"candidates-{job.id}-{arch}")


def _finish(
    arch: str,
    wheels: Wheels,
    job: Job,
    context: RunContext,
    builder: Step[Artifact],
    to: Path,
    shown: Shown,
) -> Path:
    read = [read_wheel(wheel, max_mib=MAX_READ_MIB) for wheel in wheels()]
    belongs, named = owner_of(read), named_for(arch, context)
    emulator = build_fake_hip(
        builder.result, checkout=context.checkout, store=context.store, log=shown.own_log, cache=context.cache
    )
    found = {}
    for kernel, each in named.items():
        tuning = begun(kernel, context, builder.result, emulator, Wishes(0), shown.own_log)
        refuse_other_rows(kernel, tuning.rows.id_of(kernel), read)
        if chosen := choose(tuning, each, shown.note):
            found[kernel] = OfKernel(tuning.rows.id_of(kernel), chosen)
    if not found:
        raise TuneError(TITLE, ["no candidate of the proposals is right and not dominated"])
    name, data = wheel_of(arch, belongs, found, int(read_inputs(context.checkout).source_date_epoch))
    built = _stored(name, data, builder.result, context)
    finished = to / name
    ensure(finished, data)
    opened = audit_candidates(finished)
    write_record(finished, record_of(opened, *tools_of(context, builder.result, emulator)))
    statement = make_candidates_provenance(
        job, arch, read_source(context.checkout), version=belongs.version, image=builder.result, wheel=built,
        owners={wheel.path.name: wheel.sha256 for wheel in read}, codes=opened.digests,
        run=run_details(os.environ, finished_at(built)),
    )  # fmt: skip
    write_provenance(finished, statement)
    require_attachments({finished: Demand((), candidates=opened.digests)})
    if built.reused:
        shown.skipped(UNCHANGED)
    return finished


def _stored(name: str, data: bytes, image: Artifact, context: RunContext) -> Artifact:
    """The wheel as a stage's result, which the statement is about."""
    inputs = {
        "wheel": hashlib.sha256(data).hexdigest(),
        "image": image.facts["image_id"],
        "sources": read_source(context.checkout).content,
    }

    def make(out: Path) -> Mapping[str, Any]:
        (out / name).write_bytes(data)
        return {"wheel": name, "sha256": inputs["wheel"], "bytes": len(data)}

    return context.store.get_or_make("candidates", inputs, make)


@dataclass
class Named:
    """Candidates of a kernel: those of the repository, and the others that a proposal has."""

    wanted: list[Changes] = field(default_factory=list)
    proposed: list[Changes] = field(default_factory=list)


def named_for(arch: str, context: RunContext) -> dict[Kernel, Named]:
    """An arch's candidates by kernel. Raises ``TuneError`` without any."""
    found = {
        kernel: Named(changes) for kernel, changes in wanted_for(arch, read_wanted(context.checkout)).items()
    }
    for file in sorted((context.build / FOLDER).glob(f"{arch}-*.toml")):
        kernel = kernel_named(arch, file.stem.partition("-")[2])
        shipped = rows_of(known_tiles(), arch_named(arch), kernel).id_of(kernel)
        proposal = tomllib.loads(file.read_text("utf-8"))
        of = found.setdefault(kernel, Named())
        of.proposed = [each for each in candidates_in(kernel, shipped, proposal) if each not in of.wanted]
    if not found:
        advice = f"scripts/wheel-builder tune --arch {arch} --kernel K, or name some in {FILE}"
        raise TuneError(TITLE, [f"no proposal for {arch} in {context.build / FOLDER}"], advice=advice)
    return found


def owner_of(wheels: Sequence[WheelFile]) -> For:
    """The wheel and its twins for other systems. Raises ``TuneError`` for several versions."""
    versions = sorted({str(wheel.version) for wheel in wheels})
    if len(versions) != 1:
        title = "candidates belong to one version"
        raise TuneError(
            title, [f"expected its wheels for all systems, found {', '.join(versions) or 'none'}"]
        )
    libraries = (library_of(wheel, WINDOWS_LIBRARY if for_windows(wheel) else LIBRARY) for wheel in wheels)
    return For(versions[0], tuple(sorted(hashlib.sha256(data).hexdigest() for data in libraries)))


def refuse_other_rows(kernel: Kernel, shipped: str, wheels: Sequence[WheelFile]) -> None:
    """Candidates are compared with today's rows, which the wheel has to have."""
    for wheel in wheels:
        if shipped not in row_ids(wheel, kernel.arch).get(kernel.name, ()):
            title = f"{wheel.path.name} has other rows of {kernel.name} than this checkout"
            raise TuneError(title, [f"expected {shipped}"], advice="build the wheel from this commit")


def candidates_in(kernel: Kernel, shipped: str, proposal: dict[str, object]) -> list[Changes]:
    """The candidates worth another look. Raises ``TuneError`` for a proposal that changes other rows."""
    if proposal.get("today") != shipped:
        title = f"the proposal for {kernel.name} of {kernel.arch} changes other rows than today's"
        advice = f"scripts/wheel-builder tune --arch {kernel.arch} --kernel {kernel.name}"
        raise TuneError(title, [f"expected {shipped}, found {proposal.get('today')}"], advice=advice)
    listed = proposal.get("candidates", [])
    return [
        changes_named(kernel.op, each["changes"])
        for each in (listed if isinstance(listed, list) else [])
        if not each["verdict"].startswith(PASSED_OVER)
    ]


def choose(tuning: Tuning, named: Named, say: Callable[[str], None]) -> dict[str, Chosen]:
    """The candidates that are right, by their row ids: those of the repository, then the best others."""
    every = [*named.wanted, *named.proposed]
    for at in range(0, max(1, len(every)), BATCH):
        attempt(tuning, [NONE, *every[at : at + BATCH]])
    best = [each for each in worth_timing(tuning.search("")) if each not in named.wanted]
    found: dict[str, Chosen] = {}
    for changes in (*named.wanted, *best):
        if len(found) == MOST:
            break
        if words := _problem(tuning, changes, found):
            say(f"{tuning.kernel.name}, {words_of(changes)}: left out: {words}")
    return found


def _problem(tuning: Tuning, changes: Changes, found: dict[str, Chosen]) -> str:
    """What is wrong with a candidate, or "" after taking it into ``found``."""
    if refused := tuning.outcomes[changes].refused or tuning.outcomes[changes].twin:
        return refused
    code = execute(tuning, changes)
    outcome = tuning.outcomes[changes]
    if words := outcome.wrong or unsafe(tuning, code):
        return words
    if outcome.figures:
        rows = changed(tuning.rows, changes)
        tile = workgroup(tuning.kernel, rows)
        found[rows.id_of(tuning.kernel)] = Chosen(changes, rows, tile, outcome.figures, code)
    return ""


def unsafe(tuning: Tuning, code: bytes) -> str:
    """The first failed static check of a code object, or ""."""
    bench = tuning.bench
    [listing] = list_code(
        [CodeObject(tuning.kernel.arch, code)], tools=bench.tools, store=bench.store, log=bench.log
    )
    findings = (finding for kernel in check_listing(listing) for finding in kernel.findings)
    return next((finding.text for finding in findings if finding.fails), "")
