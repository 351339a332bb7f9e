"""``scripts/wheel-builder tuning-wheel``: from an arch's candidates in the repository to their distribution.

Nothing is searched or modelled. Each candidate is compiled, checked and executed. Then the finished file is
verified by itself.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Any

from wheel_builder.audit.candidates import audit_candidates
from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import TuneError
from wheel_builder.base.store import Artifact
from wheel_builder.build.source import read_source
from wheel_builder.build.wheel_inputs import read_inputs
from wheel_builder.extras.perf.measure import Subject
from wheel_builder.extras.timings.distribution import Chosen, For, OfKernel, wheel_of
from wheel_builder.extras.timings.verify import record_of
from wheel_builder.extras.timings.wanted import changes_of, file_of, is_current, read_wanted
from wheel_builder.extras.tune.compiling import Compiled, compile_all
from wheel_builder.extras.tune.measuring import executed
from wheel_builder.extras.tune.rows import Changes, Kernel, Rows, changed, rows_of, words_of
from wheel_builder.extras.tune.run import (
    Tuning,
    Wishes,
    bar,
    begun,
    kernel_named,
    loaded,
    reason_of,
    tools_of,
    workgroup,
)
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY, device_code, for_windows, library_of
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_wheel
from wheel_builder.machine_code.disassembly.resources import read_resources
from wheel_builder.machine_code.fake_hip.stage import build_fake_hip
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
OTHER_CODE = (
    "check out the commit of the wheel: `scripts/wheel-builder verify-provenance WHEEL` names it; "
    "or build the wheel from this one: scripts/wheel-builder wheel --to dist"
)
Own = AbstractSet[str]  # digests of code


def distribute(
    arch: str, wheels: Sequence[Path], plan: Plan, context: RunContext, to: Path
) -> tuple[Steps, Step[Path]]:
    """The steps to the finished distribution in ``to``, of all current candidates, and the last of them."""
    job = jobs_to_build(plan)[0]
    steps = begin(context, plan.package)
    builder = builder_image(steps, job)
    return steps, finish_candidates(steps, arch, lambda: wheels, job, builder, to)


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
    belongs, wanted = owner_of(read), current_for(arch, context.checkout, shown.note)
    for kernel in wanted:
        refuse_other_rows(kernel, read)
    emulator = build_fake_hip(
        builder.result, checkout=context.checkout, store=context.store, log=shown.own_log, cache=context.cache
    )
    own = {hashlib.sha256(code.data).hexdigest() for each in read for code in device_code(each)}
    found = {}
    for number, (kernel, changes) in enumerate(wanted.items(), 1):
        tuning = begun(kernel, context, builder.result, emulator, Wishes(0), shown.own_log)
        if chosen := choose(tuning, changes, own, shown.note):
            found[kernel] = OfKernel(tuning.rows.id_of(kernel), chosen)
        shown.note(f"{bar(number / len(wanted))} {kernel.name}: {len(chosen)} candidates")
    if not found:
        raise TuneError(TITLE, ["none of them compiles with right results"])
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


def current_for(arch: str, checkout: Path, say: Callable[[str], None]) -> dict[Kernel, list[Changes]]:
    """The changes of the arch's file by kernel. Those of older rows are left out.

    Raises ``TuneError`` without any.
    """
    advice = f"scripts/wheel-builder candidates --arch {arch} proposes some"
    found = {}
    for name, listed in read_wanted(checkout, arch).items():
        kernel = kernel_named(arch, name)
        if not is_current(kernel, listed):
            say(f"{name}: left out: its candidates change older rows than today's; {advice}")
        elif listed.candidates:
            found[kernel] = changes_of(kernel, listed)
    if not found:
        raise TuneError(TITLE, [f"{file_of(arch)} has none for today's rows of {arch}"], advice=advice)
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


def refuse_other_rows(kernel: Kernel, wheels: Sequence[WheelFile]) -> None:
    """Candidates are compared with today's rows, which the wheel has to have."""
    shipped = rows_of(known_tiles(), arch_named(kernel.arch), kernel).id_of(kernel)
    for wheel in wheels:
        if shipped not in row_ids(wheel, kernel.arch).get(kernel.name, ()):
            title = f"{wheel.path.name} has other rows of {kernel.name} than this checkout"
            raise TuneError(title, [f"expected {shipped}"], advice="build the wheel from this commit")


def refuse_other_code(tuning: Tuning, today: Compiled, own: Own) -> None:
    """Today's rows have to give code of the wheel: other sources may take other arguments, or more time."""
    kernel = tuning.kernel
    found = hashlib.sha256(today.code).hexdigest() if today.code else reason_of(today.words)
    if found not in own:
        title = f"the wheel has other code of {kernel.name} than this checkout compiles for {kernel.arch}"
        expected = f"expected one of its code objects from today's rows {tuning.rows.id_of(kernel)}"
        raise TuneError(title, [f"{expected}, found {found}"], advice=OTHER_CODE)


def choose(
    tuning: Tuning, wanted: Sequence[Changes], own: Own, say: Callable[[str], None]
) -> dict[str, Chosen]:
    """The candidates that compile and are right, by their row ids. ``own``: code of the wheel's kernels.

    Raises ``TuneError`` if today's rows give other code.
    """
    kernel, seen = tuning.kernel, set(own)
    found: dict[str, Chosen] = {}
    rows = [changed(tuning.rows, changes) for changes in wanted]
    today, *made = compile_all(kernel, [tuning.rows, *rows], tuning.compilers)
    refuse_other_code(tuning, today, own)
    subjects = loaded(tuning, made)
    for changes, each, code in zip(wanted, rows, made, strict=True):
        digest = hashlib.sha256(code.code).hexdigest()
        words = "the same code as other rows" if digest in seen else _problem(tuning, each, code, subjects)
        seen |= {digest} if code.code else set()
        if words:
            say(f"{kernel.name}, {words_of(changes)}: left out: {words}")
            continue
        taken = read_resources(code.code, assembled=True)[kernel.name]
        tile = workgroup(kernel, each)
        found[each.id_of(kernel)] = Chosen(changes, each, tile, taken, code.code)
    return found


def _problem(tuning: Tuning, rows: Rows, made: Compiled, subjects: Mapping[bytes, Subject]) -> str:
    """What is wrong with a candidate, or ""."""
    if not made.code:
        return reason_of(made.words)
    kernel, step = tuning.kernel, rows.plain.keys or rows.plain.queries
    return executed(subjects[made.code], kernel, workgroup(kernel, rows), step, tuning.results)
