"""Finished wheels, checked and published: to a static index, or to an upload server."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from wheel_builder.audit.candidates import audit_candidates
from wheel_builder.base.errors import PublishError
from wheel_builder.base.words import listed
from wheel_builder.build.shim import NAMES, shim_of
from wheel_builder.files.wheels.candidates import has_candidates
from wheel_builder.index import publish
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.matrix.hardware import read_reports
from wheel_builder.matrix.model import Job, Matrix
from wheel_builder.matrix.support_table import planned_kernels
from wheel_builder.pipeline.shim import audit_shim
from wheel_builder.pipeline.verification import audit_of_job, demand_of, job_of
from wheel_builder.provenance.attest import require_provenance
from wheel_builder.provenance.records import Demand, require_attachments, require_served


def publish_files(
    files: Sequence[Path], matrix: Matrix, index: Path, checkout: Path, *, variants: bool = False
) -> list[Path]:
    """Check finished wheels and their attached files, then publish all or none. Returns their indexes.

    Candidates go to the index of their wheel's version, with it or after it.
    A wheel of a drop-in, such as flash-attn, goes to each index with a wheel of flash-attn-rocm. With
    ``variants``, wheels with kernels have variants for installers that choose by GPU.
    """
    shims, candidates, kernels = _parted(files)
    if (not kernels and not candidates) or (shims and not kernels):
        title = f"nothing was published: a wheel of {listed(sorted(NAMES), 'or')} alone belongs to no index"
        problems = [f"{file.name} is for every ROCm version" for file in shims]
        raise PublishError(title, problems, advice="name wheels of flash-attn-rocm with it")
    jobs = _fit_for_others(files, matrix, checkout)
    wheels: dict[str, list[Path]] = {job.name: [*shims] for job in jobs}
    for file, job in zip(kernels, jobs, strict=True):
        wheels[job.name].append(file)
    for file in candidates:
        wheels.setdefault(job_of(file, matrix).name, []).append(file)
    catalogue = catalogue_of(matrix, read_reports(checkout))
    now = datetime.now(UTC)
    published = publish.publish_all(wheels, index, catalogue=catalogue, now=now, variants=variants)
    return [published[job.name].simple for job in jobs] or [each.simple for each in published.values()]


def upload_files(files: Sequence[Path], matrix: Matrix, url: str, checkout: Path, *, log: Path) -> None:
    """Check finished wheels as ``publish_files`` does, then upload them to ``url``."""
    _fit_for_others(files, matrix, checkout)
    publish.upload(files, url, log=log)


def _fit_for_others(files: Sequence[Path], matrix: Matrix, checkout: Path) -> list[Job]:
    """Audit wheels, and check each against its record, its statement and its commit.

    Returns the jobs of wheels with kernels.
    """
    shims, candidates, kernels = _parted(files)
    jobs = [job_of(file, matrix) for file in kernels]
    for file, job in zip(kernels, jobs, strict=True):
        audit_of_job(file, job, matrix.package, checkout)
    for file in shims:
        if shim := shim_of(file):
            audit_shim(shim, file, checkout)
    opened = {file: audit_candidates(file) for file in candidates}
    versions = tuple(dict.fromkeys((*(row.version for row in matrix.rocm), *matrix.public.fits)))
    demands = {
        file: replace(demand_of(job, versions), kernels=planned_kernels(checkout, job.archs))
        for file, job in zip(kernels, jobs, strict=True)
    }
    demands |= dict.fromkeys(shims, Demand(()))
    demands |= {file: Demand((), candidates=found.digests) for file, found in opened.items()}
    require_attachments(demands)
    public = [file for file, job in zip(kernels, jobs, strict=True) if job.under_every_runtime]
    require_served(public, matrix.public)
    require_provenance(files, checkout)
    return jobs


def _parted(files: Sequence[Path]) -> tuple[list[Path], list[Path], list[Path]]:
    """Wheels of drop-ins, distributions of candidates, and wheels of flash-attn-rocm."""
    shims, candidates = (list(filter(each, files)) for each in (shim_of, has_candidates))
    return shims, candidates, [file for file in files if file not in (*shims, *candidates)]
