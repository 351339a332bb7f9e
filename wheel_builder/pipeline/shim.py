"""The drop-ins, such as flash-attn, from sources to wheels with record and statement.

    build -> audit -> tests with a wheel of flash-attn-rocm -> record, statement

Each has one file for all ROCm versions. The first job builds it.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from wheel_builder.audit.rules import PureExpectation
from wheel_builder.audit.stage import PureReport, audit_pure_wheel
from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import WheelError
from wheel_builder.base.store import Artifact
from wheel_builder.build.shim import SHIMS, Shim, build_shim
from wheel_builder.build.source import read_source
from wheel_builder.matrix.model import LINUX, Job, Matrix, platform_of
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import builder_image, verify_image
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.steps import UNCHANGED, Step, Steps
from wheel_builder.pipeline.verification import job_of
from wheel_builder.provenance.attest import finished_at, product_of, write_provenance
from wheel_builder.provenance.provenance import make_shim_provenance, run_details
from wheel_builder.provenance.records import Demand, require_attachments, write_record
from wheel_builder.verify.shim import record_of, verify_shim

MAX_MIB = 0.25  # Python files only: ten times their size
# Known when a step runs.
Wheels = Callable[[], Sequence[Path]]


def audit_shim(shim: Shim, file: Path, checkout: Path) -> PureReport:
    """Audit its finished wheel. The content has to match its commit."""
    product = product_of(file, checkout)
    return audit_pure_wheel(file, PureExpectation(shim.package, product.version, MAX_MIB, product))


def finish_shims(
    steps: Steps, beside: Wheels, job: Job, builder: Step[Artifact], tester: Step[Artifact], to: Path
) -> list[Step[Path]]:
    """Build and audit all, and verify each with wheels of flash-attn-rocm. The finished files are in ``to``.

    Record and statement of each are there too, as publishing requires.
    """
    return [
        steps.add(
            f"distribution {shim.name}",
            partial(_finish, shim, beside, steps.context, builder, tester, to),
            job=job.id, weight=15, log=f"{shim.folder}-{job.id}",
        )
        for shim in SHIMS
    ]  # fmt: skip


def _finish(
    shim: Shim,
    beside: Wheels,
    context: RunContext,
    builder: Step[Artifact],
    tester: Step[Artifact],
    to: Path,
    shown: Shown,
) -> Path:
    image, checkout, store, log = builder.result, context.checkout, context.store, shown.own_log
    built = build_shim(shim, image=image, checkout=checkout, store=store, log=log)
    made = built.path / str(built.facts["wheel"])
    version = audit_shim(shim, made, checkout).version
    verified = [
        verify_shim(shim, made, wheel, image=tester.result, checkout=checkout, store=store, log=log)
        for wheel in beside()
    ]
    finished = to / made.name
    ensure(finished, made.read_bytes())
    write_record(finished, record_of(shim, finished, verified))
    statement = make_shim_provenance(
        read_source(checkout), version=version, image=image, wheel=built,
        run=run_details(os.environ, finished_at(built)),
    )  # fmt: skip
    write_provenance(finished, statement)
    require_attachments({finished: Demand(())})
    if built.reused and all(one.reused for one in verified):
        shown.skipped(UNCHANGED)
    return finished


def shims_beside(steps: Steps, wheels: Sequence[Path], matrix: Matrix, to: Path) -> list[Step[Path]]:
    """``finish_shims`` for finished wheels, in the builder image of the first.

    Wheels for Windows are skipped: their Python files are equal. Raises ``WheelError`` if no other wheel is
    given.
    """
    wheels = [wheel for wheel in wheels if platform_of(wheel.name) == LINUX]
    if not wheels:
        message = "no wheel for Linux is named, and only beside one are the distributions tested"
        raise WheelError(message, advice="name one, such as those of scripts/release in dist")
    job = job_of(wheels[0], matrix)
    tester, builder = verify_image(steps), builder_image(steps, job)
    return finish_shims(steps, lambda: wheels, job, builder, tester, to)
