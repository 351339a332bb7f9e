"""The wheels to build: ``Matrix`` and ``Selection`` to ``Plan``. Pure.

Rejected combinations are in ``Plan.rejected``, each with its reason.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from wheel_builder.base.errors import SelectionError
from wheel_builder.base.words import aligned, unknown
from wheel_builder.matrix.model import (
    LINUX,
    PLATFORMS,
    PUBLIC,
    WINDOWS,
    Arch,
    Job,
    Matrix,
    OtherArch,
    Plan,
    Rejection,
    Rocm,
    Selection,
    wheel_words,
)

NOT_ON_WINDOWS = "ROCm does not serve it on Windows"


def plan(matrix: Matrix, selection: Selection) -> Plan:
    """Decide the jobs, in the order of matrix.yaml, each with its archs in the order of ``archs``.

    The public wheel for Linux comes last of the Linux wheels, then the one for Windows. Versions with
    ``built_in_ci: false`` need to be selected by name. Raises ``SelectionError`` with every name unknown to
    matrix.yaml.
    """
    _check_names(matrix, selection)
    plans = {LINUX: _for_linux, WINDOWS: _for_windows}
    found = [plans[platform](matrix, selection) for platform in PLATFORMS if platform in selection.platforms]
    jobs = tuple(job for jobs, _ in found for job in jobs)
    rejected = (rejection for _, rejections in found for rejection in rejections)
    return Plan(jobs, tuple(rejected), matrix.package, _runtimes(matrix, jobs))


def _runtimes(matrix: Matrix, jobs: Sequence[Job]) -> tuple[Job, ...]:
    if not any(job.under_every_runtime for job in jobs):
        return ()
    known = {job.rocm.version for job in jobs}
    more = tuple(version for version in matrix.public.runtimes if version not in known)
    return tuple(_for_linux(matrix, Selection(more))[0]) if more else ()


def _for_linux(matrix: Matrix, selection: Selection) -> tuple[list[Job], list[Rejection]]:
    jobs: list[Job] = []
    rejected: list[Rejection] = []
    for name, rocm in _considered(matrix, selection):
        refusals = [Rejection(name, arch, why) for arch, why in _refusals(matrix, name, rocm, selection)]
        refused = {refusal.arch for refusal in refusals}
        rejected += refusals
        archs = tuple(arch for arch in _wanted_archs(matrix, rocm, selection) if arch not in refused)
        if archs and "" not in refused:
            jobs.append(Job(rocm, archs, matrix.public if name == PUBLIC else None))
    return jobs, rejected


def _for_windows(matrix: Matrix, selection: Selection) -> tuple[list[Job], list[Rejection]]:
    """The public wheel for Windows, from the same parts as the one for Linux. It is the only Windows
    wheel."""
    named = [name for name in selection.rocm if name != PUBLIC]
    reason = "one wheel for Windows is for every ROCm version (--rocm public builds it)"
    rejected = [Rejection(name, "", reason, WINDOWS) for name in named]
    if selection.rocm and PUBLIC not in selection.rocm and not selection.all_rocm:
        return [], rejected
    [rocm] = [row for row in matrix.rocm if row.version == matrix.public.built_with]
    refusals = [*_refusals(matrix, PUBLIC, rocm, selection), *_not_on_windows(matrix, selection)]
    rejected += [Rejection(PUBLIC, arch, why, WINDOWS) for arch, why in refusals]
    refused = {arch for arch, _ in refusals}
    wanted = _wanted_archs(matrix, rocm, selection)
    archs = tuple(arch for arch in wanted if arch in matrix.public.windows and arch not in refused)
    jobs = [Job(rocm, archs, matrix.public, WINDOWS)] if archs and "" not in refused else []
    return jobs, rejected


def _not_on_windows(matrix: Matrix, selection: Selection) -> Iterator[tuple[str, str]]:
    for arch in selection.archs or (() if matrix.public.windows else ("",)):
        if arch not in matrix.public.windows:
            yield arch, f"{NOT_ON_WINDOWS} (`public.windows` in matrix.yaml)"


def jobs_to_build(plan: Plan) -> tuple[Job, ...]:
    """The plan's jobs. Raises ``SelectionError`` with the reasons when there are none."""
    if not plan.jobs:
        title = "nothing to build"
        raise SelectionError(
            title,
            [_rejection_text(rejection) for rejection in plan.rejected],
            advice="choose others with --rocm and --archs; `plan --all` lists them",
        )
    return plan.jobs


def device_rows(plan: Plan) -> list[dict[str, str]]:
    """Rows of the workflow matrix that compiles device code: one for each ROCm version and arch."""
    rows = [
        {"job": job.builder, "rocm": job.rocm.version, "arch": arch}
        for job in plan.jobs
        for arch in job.archs
    ]
    return [row for n, row in enumerate(rows) if row not in rows[:n]]


def wheel_rows(plan: Plan) -> list[dict[str, str]]:
    """Rows of the workflow matrix that makes wheels. ``archs`` and ``runtimes`` are option values.

    ``builder`` is the job of a wheel's image and device code.
    """
    runtimes = ",".join(dict.fromkeys(job.rocm.version for job in plan.with_images))
    return [
        {
            "job": job.id,
            "rocm": job.name,
            "builder": job.builder,
            "platform": job.platform,
            "archs": ",".join(job.archs),
            "runtimes": runtimes,
        }
        for job in plan.jobs
    ]


def gpu_rows(plan: Plan) -> list[dict[str, str]]:
    """Rows of the workflow matrix for machines with a GPU and Linux."""
    return [{"job": job.id} for job in plan.jobs if not job.for_windows]


def runtime_image_rows(plan: Plan) -> list[dict[str, str]]:
    """Rows of the workflow matrix that makes runtime images: one for each ROCm version."""
    own = {job.rocm.version for job in plan.jobs if not job.public}
    linux = (job for job in plan.jobs if not job.for_windows)
    return [{"job": job.id} for job in linux if not job.public or job.rocm.version not in own]


def image_rows(plan: Plan, keys: Mapping[str, str]) -> list[dict[str, str]]:
    """Rows of the workflow matrix that makes builder images. ``image`` is the digest of its inputs."""
    names = dict.fromkeys((job.builder, job.rocm.version) for job in plan.with_images)
    return [{"job": job, "rocm": rocm, "image": keys[job]} for job, rocm in names]


def tuning_image_rows(plan: Plan, keys: Mapping[str, str]) -> list[dict[str, str]]:
    """Those of candidates: the image that compiles the public wheel, and none to run it."""
    builders = {row["builder"] for row in tuning_rows(plan)}
    return [row for row in image_rows(plan, keys) if row["job"] in builders]


def tuning_rows(plan: Plan) -> list[dict[str, str]]:
    """Rows of the workflow matrix that makes candidates: the archs of the public wheel, and their builder."""
    return [
        {"arch": arch, "builder": job.builder}
        for job in plan.jobs
        if job.public and job.platform == LINUX
        for arch in job.archs
    ]


def to_github(plan: Plan, keys: Mapping[str, str]) -> str:
    """Lines for ``$GITHUB_OUTPUT``. Each value is input for ``strategy.matrix`` through ``fromJSON``.

    ``keys`` maps each job's ``builder`` to the digest of its image's inputs.
    Raises ``SelectionError`` without jobs: a workflow matrix must have a row.
    """
    jobs_to_build(plan)
    rows = {
        "image": image_rows(plan, keys),
        "device": device_rows(plan),
        "wheel": wheel_rows(plan),
        "gpu": gpu_rows(plan),
        "runtime": runtime_image_rows(plan),
        "tuning": tuning_rows(plan),
        "tuning_image": tuning_image_rows(plan, keys),
    }
    return output_lines(rows)


def output_lines(rows: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    """The rows of several matrices as lines for ``$GITHUB_OUTPUT``."""
    return "\n".join(
        f"{name}={json.dumps({'include': include}, separators=(',', ':'))}" for name, include in rows.items()
    )


def to_json(plan: Plan) -> str:
    """The whole plan."""
    jobs = [{"id": job.id, **asdict(job)} for job in plan.jobs]
    return json.dumps({**asdict(plan), "jobs": jobs}, indent=2)


def to_table(plan: Plan) -> str:
    """The plan for people: aligned columns, then the rejections with their reasons."""
    rows = [("job", "ROCm from", "base image", "archs")]
    rows += [(job.id, job.rocm.provider, job.rocm.base, " ".join(job.archs)) for job in plan.jobs]
    lines = aligned(rows, left=len(rows[0])) if plan.jobs else ["nothing to build"]
    if plan.rejected:
        lines += ["", *rejection_lines(plan)]
    return "\n".join(lines)


def rejection_lines(plan: Plan) -> list[str]:
    """The rejections with their reasons, one line each under a heading, empty when all is built."""
    texts = [f"  {_rejection_text(rejection)}" for rejection in plan.rejected]
    return ["not built:", *texts] if texts else []


def _check_names(matrix: Matrix, selection: Selection) -> None:
    versions = [*(rocm.version for rocm in matrix.rocm), PUBLIC]
    archs = _targets(matrix)
    problems = [
        f"--rocm: {unknown('ROCm version', name, versions)}"
        for name in selection.rocm
        if name not in versions
    ]
    problems += [
        f"--archs: {_unknown_arch(matrix, name, archs)}" for name in selection.archs if name not in archs
    ]
    if problems:
        title = "the command line has names missing in matrix.yaml"
        raise SelectionError(title, problems, advice="`plan --all` lists valid names")


def _targets(matrix: Matrix) -> list[str]:
    """The compiled targets: GPUs with machine code of their own."""
    return [arch.name for arch in matrix.archs if arch.code == arch.name]


def _unknown_arch(matrix: Matrix, name: str, archs: list[str]) -> str:
    # Three letters such as MI3 or XTX would match half of the list.
    every: list[Arch | OtherArch] = [*matrix.archs, *matrix.other_archs]
    devices = [arch.name for arch in every if len(name) > 3 and name.lower() in arch.devices.lower()]
    if devices:
        return f"{name!r} is the name of a device; its arch is {' or '.join(devices)}"
    for arch in matrix.archs:
        if arch.name == name:
            return f"{name} runs the code of {arch.code_object}; name that"
    for other in matrix.other_archs:
        if other.name == name:
            return f"nothing is built for {name}: {other.reason}"
    return unknown("arch", name, archs)


def _considered(matrix: Matrix, selection: Selection) -> list[tuple[str, Rocm]]:
    """The names of jobs, each with the row of its ROCm version."""
    wanted = selection.rocm or (matrix.default_rocm,)
    rows = {rocm.version: rocm for rocm in matrix.rocm}
    every = {**rows, PUBLIC: rows[matrix.public.built_with]}
    return [(name, rocm) for name, rocm in every.items() if selection.all_rocm or name in wanted]


def _wanted_archs(matrix: Matrix, rocm: Rocm, selection: Selection) -> list[str]:
    wanted = selection.archs or rocm.archs
    return [arch for arch in _targets(matrix) if arch in wanted]


def _refusals(matrix: Matrix, name: str, rocm: Rocm, selection: Selection) -> Iterator[tuple[str, str]]:
    """Archs ("" for all) rejected for the job ``name``, each with its reason."""
    wanted = _wanted_archs(matrix, rocm, selection)
    excludes = [exclude for exclude in matrix.exclude if exclude.rocm == rocm.version]
    whole = [exclude for exclude in excludes if not exclude.arch]
    if whole:
        yield "", whole[0].reason
    elif not rocm.built_in_ci and name not in selection.rocm:
        yield "", f"not built in our CI: {rocm.note} (--rocm {name} builds it)"
    else:
        for arch in wanted:
            if arch not in rocm.archs:
                yield arch, f"matrix.yaml does not list it for ROCm {rocm.version}"
        for exclude in excludes:
            if exclude.arch in wanted:
                yield exclude.arch, exclude.reason


def _rejection_text(rejection: Rejection) -> str:
    words = wheel_words(rejection.rocm, rejection.platform)
    return f"{words} {rejection.arch}".rstrip() + f": {rejection.reason}"
