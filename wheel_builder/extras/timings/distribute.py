"""``scripts/wheel-builder tuning-wheel``: from the proposals of ``tune`` to a wheel of candidates.

Each candidate is compiled and executed as in a search, and its machine code passes the static checks.
"""

import hashlib
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import TuneError
from wheel_builder.build.wheel_inputs import read_inputs
from wheel_builder.extras.timings.distribution import MOST, Chosen, For, OfKernel, wheel_of, worth_timing
from wheel_builder.extras.tune.rows import NONE, Changes, Kernel, changed, changes_named, words_of
from wheel_builder.extras.tune.run import (
    BATCH,
    FOLDER,
    Tuning,
    Wishes,
    attempt,
    begun,
    execute,
    kernel_named,
    workgroup,
)
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY, for_windows, library_of
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_wheel
from wheel_builder.machine_code.disassembly.listing import list_code
from wheel_builder.machine_code.static_checks.check import check_listing
from wheel_builder.matrix.model import Plan
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.verification import build_emulator
from wheel_builder.provenance.reported_wheel import row_ids

TITLE = "there are no candidates to distribute"
# Verdicts of a proposal on candidates that are worth no more time.
PASSED_OVER = ("today's", "refused", "the same code", "wrong results", "dominated")


def distribute(
    arch: str, wheels: Sequence[Path], plan: Plan, context: RunContext, to: Path, *, plain: bool | None
) -> Path:
    """The file in ``to``, with candidates of all proposals for ``arch``. Raises ``TuneError``."""
    proposals = {
        kernel_named(arch, file.stem.partition("-")[2]): tomllib.loads(file.read_text("utf-8"))
        for file in sorted((context.build / FOLDER).glob(f"{arch}-*.toml"))
    }
    read = [read_wheel(wheel, max_mib=MAX_READ_MIB) for wheel in wheels]
    belongs = owner_of(read)
    if not proposals:
        advice = f"scripts/wheel-builder tune --arch {arch} --kernel K"
        raise TuneError(TITLE, [f"no proposal for {arch} in {context.build / FOLDER}"], advice=advice)
    job = jobs_to_build(plan)[0]
    steps = begin(context, plan.package)
    builder = builder_image(steps, job)
    emulator = build_emulator(steps, job, builder)

    def work(step: Shown) -> Path:
        found = {}
        for kernel, proposal in proposals.items():
            tuning = begun(kernel, context, builder.result, emulator.result, Wishes(0), step.own_log)
            shipped = tuning.rows.id_of(kernel)
            refuse_other_rows(kernel, shipped, read)
            if chosen := choose(tuning, candidates_in(kernel, shipped, proposal), step.note):
                found[kernel] = OfKernel(shipped, chosen)
        if not found:
            raise TuneError(TITLE, ["no candidate of the proposals is right and not dominated"])
        epoch = int(read_inputs(context.checkout).source_date_epoch)
        name, data = wheel_of(arch, belongs, found, epoch)
        ensure(to / name, data)
        return to / name

    made = steps.add(f"candidates {arch}", work, weight=600, log="tuning-wheel")
    steps.run(plain=plain)
    return made.result


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


def choose(tuning: Tuning, named: Sequence[Changes], say: Callable[[str], None]) -> dict[str, Chosen]:
    """The best candidates that are right, by their row ids."""
    kernel = tuning.kernel
    for at in range(0, max(1, len(named)), BATCH):
        attempt(tuning, [NONE, *named[at : at + BATCH]])
    found: dict[str, Chosen] = {}
    for changes in worth_timing(tuning.search("")):
        if len(found) == MOST:
            break
        code = execute(tuning, changes)
        outcome = tuning.outcomes[changes]
        if words := outcome.wrong or unsafe(tuning, code):
            say(f"{kernel.name}, {words_of(changes)}: left out: {words}")
        elif outcome.figures:
            rows = changed(tuning.rows, changes)
            chosen = Chosen(changes, rows, workgroup(kernel, rows), outcome.figures, code)
            found[rows.id_of(kernel)] = chosen
    return found


def unsafe(tuning: Tuning, code: bytes) -> str:
    """The first failed static check of a code object, or ""."""
    bench = tuning.bench
    [listing] = list_code(
        [CodeObject(tuning.kernel.arch, code)], tools=bench.tools, store=bench.store, log=bench.log
    )
    findings = (finding for kernel in check_listing(listing) for finding in kernel.findings)
    return next((finding.text for finding in findings if finding.fails), "")
