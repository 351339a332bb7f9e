"""The distributions flash-attn and flash-attn-3, from sources to wheels with record and statement.

    build -> audit -> tests beside a wheel of flash-attn-rocm -> record, statement

Each is the same file for every ROCm version, so whichever job comes first makes it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from wheel_builder.audit.rules import PureExpectation
from wheel_builder.audit.stage import PureReport, audit_pure_wheel
from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import WheelError
from wheel_builder.base.store import Artifact
from wheel_builder.build.shim import SHIMS, Shim, build_shim
from wheel_builder.build.source import read_source
from wheel_builder.matrix.model import LINUX, Job, Matrix, platform_of
from wheel_builder.pipeline.context import (
    ENGINE,
    VERIFY_IMAGE,
    RunContext,
    builder_image,
    builder_step,
    progress_of,
    start_engine,
    verify_image,
)
from wheel_builder.pipeline.progress import Planned, Progress
from wheel_builder.pipeline.verification import job_of
from wheel_builder.provenance.attest import finished_at, product_of, write_provenance
from wheel_builder.provenance.provenance import make_shim_provenance, run_details
from wheel_builder.provenance.records import Demand, require_attachments, write_record
from wheel_builder.verify.shim import record_of, verify_shim

MAX_MIB = 0.25  # Python files only: ten times what it has


def shim_steps(job: Job) -> list[Planned]:
    """The steps of ``finish_shims`` in their order."""
    return [Planned(_step(shim), job.id, weight=15) for shim in SHIMS]


def _step(shim: Shim) -> str:
    return f"distribution {shim.name}"


def audit_shim(shim: Shim, file: Path, checkout: Path) -> PureReport:
    """Audit its finished wheel; what is in it has to be what its commit puts in."""
    product = product_of(file, checkout)
    return audit_pure_wheel(file, PureExpectation(shim.package, product.version, MAX_MIB, product))


def finish_shims(
    beside: Sequence[Path],
    job: Job,
    builder: Artifact,
    tester: Artifact,
    to: Path,
    context: RunContext,
    progress: Progress,
) -> list[Path]:
    """Build and audit all, and verify each beside wheels of flash-attn-rocm; the finished files in ``to``.

    Record and statement of each lie there too, as publishing asks.
    """
    return [_finish(shim, beside, job, builder, tester, to, context, progress) for shim in SHIMS]


def _finish(
    shim: Shim,
    beside: Sequence[Path],
    job: Job,
    builder: Artifact,
    tester: Artifact,
    to: Path,
    context: RunContext,
    progress: Progress,
) -> Path:
    log = context.log(f"{shim.folder}-{job.id}")
    with progress.step(_step(shim), job=job.id, log=log) as step:
        built = build_shim(shim, image=builder, checkout=context.checkout, store=context.store, log=log)
        made = built.path / str(built.facts["wheel"])
        version = audit_shim(shim, made, context.checkout).version
        shown = [
            verify_shim(
                shim, made, wheel, image=tester, checkout=context.checkout, store=context.store, log=log
            )
            for wheel in beside
        ]
        finished = to / made.name
        ensure(finished, made.read_bytes())
        write_record(finished, record_of(shim, finished, shown))
        statement = make_shim_provenance(
            read_source(context.checkout), version=version, image=builder, wheel=built,
            run=run_details(os.environ, finished_at(built)),
        )  # fmt: skip
        write_provenance(finished, statement)
        require_attachments({finished: Demand(())})
        if built.reused and all(one.reused for one in shown):
            step.skipped("unchanged")
    return finished


def shims_beside(
    wheels: Sequence[Path], matrix: Matrix, to: Path, context: RunContext, *, plain: bool | None = None
) -> list[Path]:
    """``finish_shims`` for finished wheels, in the builder image of the first.

    Those for Windows are passed over: Python files are the same there.  Raises ``WheelError`` without others.
    """
    wheels = [wheel for wheel in wheels if platform_of(wheel.name) == LINUX]
    if not wheels:
        message = "no wheel for Linux is named, and only beside one are the distributions tested"
        raise WheelError(message, advice="name one, such as those of scripts/release in dist")
    job = job_of(wheels[0], matrix)
    with progress_of(planned_shims(job), context, plain) as progress:
        start_engine(context, progress)
        tester = verify_image(matrix.package, context, progress)
        builder = builder_image(job, matrix.package, context, progress)
        return finish_shims(wheels, job, builder, tester, to, context, progress)


def planned_shims(job: Job) -> list[Planned]:
    """The steps of ``shims_beside`` in their order."""
    return [ENGINE, VERIFY_IMAGE, builder_step(job), *shim_steps(job)]
