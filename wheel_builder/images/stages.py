"""Image: the builder image of a ROCm version, one with only its HIP runtime, and the verify image for
finished wheels.

Input: a job (ROCm version, archs) and the promises of every wheel. Output: an image in the engine, checked
from inside, and a manifest with its name, id, and the exact versions of all packages in it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store
from wheel_builder.images import docker
from wheel_builder.images.bases import ensure_base
from wheel_builder.images.build import (
    PYTHON_PACKAGES,
    ImageBuild,
    context,
    file_digests,
    find_image,
    link_tree,
    package_groups,
    run_check,
    stored_image,
    tag_of,
)
from wheel_builder.images.fetch import DOCKERFILES
from wheel_builder.images.hostenv import HostSettings
from wheel_builder.images.torch_headers import fetch_headers
from wheel_builder.matrix.model import Job, Package

BUILDER_REQUIREMENTS = "builder-requirements.txt"
BUILDER_PACKAGES = (*PYTHON_PACKAGES, "ccache")
BUILDER_FILES = (
    "builder.Dockerfile",
    BUILDER_REQUIREMENTS,
    "check_image.sh",
    "install_packages.sh",
    "install_tools.sh",
    "warm_zig.cpp",
    "warm_zig.sh",
)
HIP_FILES = ("builder.Dockerfile", "install_packages.sh")
HIP_ARGUMENTS = ("PACKAGES", "LLVM")
# cibuildwheel finds the image's Python here, whichever version it is.
INTERPRETER = "/opt/python/cp39-cp39"
ZIG_FLAGS = DOCKERFILES.parent / "kernels/build/zig_flags.txt"
LIST_TOOLS = """
import importlib.metadata, json, pathlib, re, ziglang
config = pathlib.Path(ziglang.__file__).parent / "lib/libcxx/include/__config"
number = int(re.search(r"_LIBCPP_VERSION +([0-9]+)", config.read_text())[1])
print(json.dumps({
    "python_packages": {found.name: found.version for found in importlib.metadata.distributions()},
    "libcxx": f"{number // 10000}.{number // 100 % 100}.{number % 100}",
}))
"""
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
    """The builder image of the job's ROCm version, built if the engine lacks it.

    Facts: ``ref``, ``image_id``, ``os``, ``packages``, ``python_tag`` (``cp314-cp314``), ``base``,
    ``python_packages`` (name -> version), ``libcxx`` (the release of zig's C++ library).
    ``host`` and ``fresh`` as in ``ImageBuild``. Raises ``ImageError`` if the image fails to build or fails
    its check.
    """
    log = logs / f"image-{job.id}.log"
    headers = fetch_headers(package, store, index=torch_index, logs=logs, run=run)
    args = builder_arguments(job, package)
    inputs = builder_inputs(job, package)

    def make(_: Path) -> Mapping[str, Any]:
        base = ensure_base(job.rocm.base, job.rocm.suite, log=log, run=run)
        ref = f"flash-attn-rocm-builder:{builder_key(job, package)}"
        full = {**args, "BASE": base.ref}
        build = ImageBuild("builder.Dockerfile", ref, full, log, run, host=host, fresh=fresh)
        what = f"the builder image of ROCm {job.rocm.version}"
        with context(BUILDER_FILES, what, log) as folder:
            wheels = _builder_wheels(build, build.system(folder), store)
            link_tree(wheels.path / "wheels", folder / "wheels")
            link_tree(headers.path, folder / "torch-stable")
            build.finish(folder)
        run_check(ref, ["check-image", *job.rocm.archs], what, log=log, run=run)
        python, tools = (
            docker.run_in(ref, argv, user=docker.NOBODY, log=log, run=run).stdout
            for argv in (["readlink", INTERPRETER], [f"{INTERPRETER}/bin/python", "-c", LIST_TOOLS])
        )
        return {**build.facts(base), **json.loads(tools), "python_tag": python.strip()}

    return stored_image("image", inputs, store, make, run=run)


def build_hip_image(
    job: Job,
    package: Package,
    store: Store,
    *,
    logs: Path,
    run: Runner = run,
) -> Artifact:
    """An image with the HIP runtime of the job's ROCm version. It is the builder image if the engine has it,
    otherwise the builder's first stage: the distribution's packages, without the tools that make wheels.

    Facts: ``ref``, ``image_id``, ``os``, ``packages``, ``base``. Raises ``ImageError`` if it fails to build.
    """
    if builder := find_image("image", builder_inputs(job, package), store, run=run):
        return builder
    log = logs / f"image-{job.id}.log"
    args = {name: builder_arguments(job, package)[name] for name in HIP_ARGUMENTS}
    inputs = {
        "base": job.rocm.base,
        "suite": job.rocm.suite,
        "args": args,
        "files": file_digests(HIP_FILES),
    }

    def make(_: Path) -> Mapping[str, Any]:
        base = ensure_base(job.rocm.base, job.rocm.suite, log=log, run=run)
        ref = f"flash-attn-rocm-hip:{job.rocm.version}-{tag_of(inputs)}"
        build = ImageBuild("builder.Dockerfile", ref, {**args, "BASE": base.ref}, log, run)
        with context(HIP_FILES, f"the image with the HIP runtime of ROCm {job.rocm.version}", log) as folder:
            build.finish(folder, target="system")
        return build.facts(base)

    return stored_image("hip-image", inputs, store, make, run=run)


def builder_inputs(job: Job, package: Package) -> Mapping[str, Any]:
    """The inputs of a job's builder image, known before anything is fetched."""
    return {
        "base": job.rocm.base,
        "suite": job.rocm.suite,
        "args": builder_arguments(job, package),
        "archs": list(job.rocm.archs),
        # Any other headers are refused.
        "headers": package.torch_headers_sha256,
        "files": file_digests(BUILDER_FILES),
    }


def builder_key(job: Job, package: Package) -> str:
    """A name for the content of a job's builder image, for caches of it."""
    return f"{job.rocm.version}-{tag_of(builder_inputs(job, package))}"


def builder_arguments(job: Job, package: Package) -> Mapping[str, str]:
    """The build arguments that differ between ROCm versions and providers. The build adds the base."""
    return {
        "PACKAGES": package_groups((*job.rocm.packages, ("", BUILDER_PACKAGES))),
        "LLVM": job.rocm.llvm,
        "ZIG_FLAGS": " ".join(ZIG_FLAGS.read_text(encoding="ascii").format(glibc=package.glibc).split()),
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
        base = ensure_base(VERIFY_BASE, VERIFY_SUITE, log=log, run=run)
        args = {"BASE": base.ref, "PACKAGES": package_groups([("", PYTHON_PACKAGES)])}
        ref = f"flash-attn-rocm-verify:{tag_of(inputs)}"
        build = ImageBuild(
            "verify.Dockerfile", ref, args, log, run, torch_index=torch_index, host=host, fresh=fresh
        )
        with context(VERIFY_FILES, "the verify image", log) as folder:
            system, wheels = build.system(folder), folder / "wheels"
            wheels.mkdir()
            torch = build.fetch_torch(system, f"torch=={package.torch_headers}", wheels)
            build.fetch_pinned(system, VERIFY_REQUIREMENTS, wheels)
            build.finish(folder)
        return {**build.facts(base), "torch": torch.name}

    return stored_image("verify-image", inputs, store, make, run=run)


def _builder_wheels(build: ImageBuild, system: str, store: Store) -> Artifact:
    """The builder's pinned Python tools. They are stored, as their hashes are the same everywhere."""
    said = docker.run_in(system, ["python3", "--version"], user=docker.NOBODY, run=build.run).stdout
    python = said.split()[-1].rpartition(".")[0]
    inputs = {"files": file_digests([BUILDER_REQUIREMENTS]), "python": python}

    def make(folder: Path) -> Mapping[str, Any]:
        wheels = folder / "wheels"
        wheels.mkdir()
        build.fetch_pinned(system, BUILDER_REQUIREMENTS, wheels)
        return {"python": python}

    return store.get_or_make("builder-wheels", inputs, make)
