"""Image: the builder image of a ROCm version, and the image in which finished wheels are verified.

In: a job (ROCm version, archs) and what every wheel promises.  Out: an image in the engine, checked from
inside, and a manifest with its name, id, and the exact versions of all packages in it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheel_builder import docker, hostenv
from wheel_builder.bases import Base, ensure_base
from wheel_builder.hostenv import HostSettings
from wheel_builder.image_build import (
    PYTHON_PACKAGES,
    context,
    describe,
    explained,
    file_digests,
    link_tree,
    package_groups,
    run_check,
    stored_image,
    tag_of,
)
from wheel_builder.model import Job, Package
from wheel_builder.process import Runner, run
from wheel_builder.store import Artifact, Store
from wheel_builder.torch_headers import fetch_headers
from wheel_builder.wheel_files import DOCKERFILES, fetch_torch, fetch_wheels

BUILDER_REQUIREMENTS = "builder-requirements.txt"
BUILDER_FILES = (
    "builder.Dockerfile",
    BUILDER_REQUIREMENTS,
    "check_image.sh",
    "install_packages.sh",
    "install_tools.sh",
    "warm_zig.cpp",
    "warm_zig.sh",
)
VERIFY_REQUIREMENTS = "verify-requirements.txt"
VERIFY_FILES = ("verify.Dockerfile", VERIFY_REQUIREMENTS, "install_packages.sh", "install_venv.sh")
VERIFY_SUITE, VERIFY_BASE = "bookworm", "debian:bookworm-slim"


def build_image(
    job: Job,
    package: Package,
    store: Store,
    *,
    logs: Path,
    host: HostSettings | None = None,
    torch_index: str = "",
    fresh: bool = False,
    run: Runner = run,
) -> Artifact:
    """The builder image of the job's ROCm version; built when the engine does not have it.

    Facts: ``ref``, ``image_id``, ``os``, ``packages``, ``python_tag`` (``cp314-cp314``), ``base``.
    ``host`` is what ``hostenv.read_host_settings`` finds when None; ``fresh`` ignores cached layers.
    Raises ``ImageError`` when it does not build or its check fails.
    """
    log = logs / f"image-{job.id}.log"
    headers = fetch_headers(package, store, index=torch_index, logs=logs, run=run)
    args = builder_arguments(job, package)
    inputs = {
        "base": job.rocm.base,
        "suite": job.rocm.suite,
        "args": args,
        "archs": list(job.archs),
        "headers": headers.facts["sha256"],
        "files": file_digests(BUILDER_FILES),
    }

    def make(_: Path) -> Mapping[str, Any]:
        ref = f"flash-attn-rocm-builder:{job.rocm.version}-{tag_of(inputs)}"
        base = ensure_base(job.rocm.base, job.rocm.suite, log=log, run=run)
        with explained(f"the builder image of ROCm {job.rocm.version} does not build", log):
            with context(BUILDER_FILES) as folder:
                full = {**args, "BASE": base.ref}
                system = _build_system(folder, "builder.Dockerfile", ref, full, fresh, log, run)
                wheels = _builder_wheels(system, store, host, log, run)
                link_tree(wheels.path / "wheels", folder / "wheels")
                link_tree(headers.path, folder / "torch-stable")
                docker.build(folder, "builder.Dockerfile", ref, args=full, log=log, run=run)
        run_check(ref, ["check-image", *job.archs], f"the builder image {ref}", log=log, run=run)
        python = docker.run_in(ref, ["readlink", "/opt/python/cp39-cp39"], log=log, run=run)
        return {**_facts(ref, base, log, run), "python_tag": python.stdout.split()[-1]}

    return stored_image("image", inputs, store, make, run=run)


def builder_arguments(job: Job, package: Package) -> Mapping[str, str]:
    """The build arguments that tell ROCm versions and providers apart; the base comes with the build."""
    return {
        "PACKAGES": package_groups((*job.rocm.packages, ("", PYTHON_PACKAGES))),
        "LLVM": job.rocm.llvm,
        "PLATFORM_TAG": package.platform_tag,
    }


def build_verify_image(
    package: Package,
    store: Store,
    *,
    logs: Path,
    host: HostSettings | None = None,
    torch_index: str = "",
    fresh: bool = False,
    run: Runner = run,
) -> Artifact:
    """The image for the verify stage: another distribution, CPU torch, pytest, a user without rights.

    Facts: ``ref``, ``image_id``, ``os``, ``packages``, ``torch`` (the wheel's file name), ``base``.
    """
    log = logs / "image-verify.log"
    inputs = {
        "base": VERIFY_BASE,
        "suite": VERIFY_SUITE,
        "torch": package.torch_headers,
        "torch_index": torch_index,
        "files": file_digests(VERIFY_FILES),
    }

    def make(_: Path) -> Mapping[str, Any]:
        ref = f"flash-attn-rocm-verify:{tag_of(inputs)}"
        base = ensure_base(VERIFY_BASE, VERIFY_SUITE, log=log, run=run)
        args = {"BASE": base.ref, "PACKAGES": package_groups([("", PYTHON_PACKAGES)])}
        with explained("the verify image does not build", log), context(VERIFY_FILES) as folder:
            system = _build_system(folder, "verify.Dockerfile", ref, args, fresh, log, run)
            settings = host or hostenv.read_host_settings(run=run)
            wheels = folder / "wheels"
            wheels.mkdir()
            torch = fetch_torch(
                system, f"torch=={package.torch_headers}", wheels, index=torch_index, host=settings, log=log, run=run
            )
            _fetch_pinned(system, VERIFY_REQUIREMENTS, wheels, settings, log, run)
            docker.build(folder, "verify.Dockerfile", ref, args=args, log=log, run=run)
        return {**_facts(ref, base, log, run), "torch": torch.name}

    return stored_image("verify-image", inputs, store, make, run=run)


def _build_system(
    folder: Path, dockerfile: str, ref: str, args: Mapping[str, str], fresh: bool, log: Path, run: Runner
) -> str:
    """Build the stage with the distribution's packages, whose Python then fetches the wheels."""
    system = f"{ref}-system"
    docker.build(folder, dockerfile, system, args=args, target="system", fresh=fresh, log=log, run=run)
    return system


def _builder_wheels(
    system: str, store: Store, host: HostSettings | None, log: Path, run: Runner
) -> Artifact:
    """The builder's pinned Python tools; stored, since hashes make them the same from everywhere."""
    python = docker.run_in(system, ["python3", "--version"], log=log, run=run).stdout.split()[-1]
    inputs = {"files": file_digests([BUILDER_REQUIREMENTS]), "python": python.rpartition(".")[0]}

    def make(folder: Path) -> Mapping[str, Any]:
        (folder / "wheels").mkdir()
        settings = host or hostenv.read_host_settings(run=run)
        _fetch_pinned(system, BUILDER_REQUIREMENTS, folder / "wheels", settings, log, run)
        return {"wheels": sorted(file.name for file in (folder / "wheels").iterdir())}

    return store.get_or_make("builder-wheels", inputs, make)


def _fetch_pinned(
    image: str, requirements: str, into: Path, host: HostSettings, log: Path, run: Runner
) -> None:
    wanted: Sequence[str] = ("--no-deps", "--require-hashes", "--requirement", f"/run/files/{requirements}")
    fetch_wheels(image, wanted, into, files=[DOCKERFILES / requirements], host=host, log=log, run=run)


def _facts(ref: str, base: Base, log: Path, run: Runner) -> Mapping[str, Any]:
    made = {"ref": base.ref, "image_id": base.id, "origin": base.origin}
    return {**describe(ref, log=log, run=run), "base": made}
