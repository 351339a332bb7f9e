"""Runtime images: the HIP runtime, torch and the finished wheel. The name tells the torch inside:

    rocm-fa:<ROCm version>         PyTorch's ROCm build: attention runs on the GPU
    rocm-fa:<ROCm version>-cpu     a CPU build, for machines without a GPU
    rocm-fa:<ROCm version>-slim    none: its user adds one

Input: a job and its finished wheel. Output: an image that prints the doctor's report, or runs the command
given to ``docker run``, as an unprivileged user. Its size is in its facts and within the budget.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file
from wheel_builder.build.source import Source, read_source
from wheel_builder.images import docker
from wheel_builder.images.bases import Base, ensure_base
from wheel_builder.images.build import ImageBuild, context, file_digests, package_groups, stored_image, tag_of
from wheel_builder.images.fetch import torch_rocm
from wheel_builder.images.hostenv import HostSettings
from wheel_builder.images.size import measure, refuse_too_large
from wheel_builder.matrix.model import Job, Package, Rocm

FILES = (
    "runtime.Dockerfile",
    "forget_documents.sh",
    "install_packages.sh",
    "install_venv.sh",
    "runtime_entrypoint.sh",
    "runtime_healthy.sh",
)
HIP_HEADERS = "libamdhip64-dev"
HEALTHY = "rocm-fa-healthy"


@dataclass(frozen=True)
class Python:
    """The image's Python, which needs a matching torch wheel.

    ``suite`` is the Debian suite of the package ``program``. Empty means the base image's own Python.
    """

    program: str = "python3.11"
    suite: str = "bookworm"


BASE_PYTHON = Python(program="python3", suite="")


@dataclass(frozen=True)
class Torch:
    """The torch wheel of an image. ``rocm`` is its HIP version, empty for a CPU build."""

    wheel: str = ""
    rocm: str = ""

    @property
    def build(self) -> str:
        """The doctor's name for it, empty without torch."""
        return (f"ROCm {self.rocm}" if self.rocm else "CPU") if self.wheel else ""

    @property
    def suffix(self) -> str:
        """The end of the image's name."""
        if not self.wheel:
            return "-slim"
        return "" if self.rocm else "-cpu"

    @property
    def description(self) -> str:
        if not self.wheel:
            return "flash-attn-rocm and the HIP runtime, without PyTorch, which has to be added"
        if not self.rocm:
            return "flash-attn-rocm with a CPU build of PyTorch, which can use no GPU"
        return f"FlashAttention for AMD GPUs, with PyTorch's build for ROCm {self.rocm}"


NO_TORCH = Torch()


@dataclass(frozen=True)
class Recipe:
    """The parts of a runtime image. ``torch`` is a requirement, empty for the slim image."""

    job: Job
    wheel: Path
    python: Python
    torch: str
    torch_index: str
    for_gpu: bool = False

    @property
    def version(self) -> str:
        """Its name before its torch is known."""
        return self.job.rocm.version + ("" if self.torch else "-slim")

    @property
    def arguments(self) -> Mapping[str, str]:
        modules = "torch numpy flash_attn_rocm" if self.torch else ""
        packages = runtime_packages(self.job.rocm, self.python)
        return {"PACKAGES": packages, "PYTHON": self.python.program, "MODULES": modules}

    @property
    def inputs(self) -> Mapping[str, Any]:
        return {
            "base": self.job.rocm.base,
            "suite": self.job.rocm.suite,
            "args": self.arguments,
            "python": asdict(self.python),
            "torch": self.torch,
            "torch_index": self.torch_index,
            "for_gpu": self.for_gpu,
            "wheel": {"name": self.wheel.name, "sha256": sha256_file(self.wheel)},
            "files": file_digests(FILES),
        }


def build_runtime_image(
    job: Job,
    wheel: Path,
    store: Store,
    *,
    package: Package,
    checkout: Path,
    logs: Path,
    slim: bool = False,
    for_gpu: bool = False,
    python: Python | None = None,
    torch_index: str = "",
    host: HostSettings | None = None,
    fresh: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    run: Runner = run,
) -> Artifact:
    """Build the runtime image of the job's ROCm version with this wheel in it.

    Its labels name the address and commit of ``checkout``.
    If ``python`` is None, it is ``Python()`` for Debian images and the image's own for vendor images. torch
    is the release of ``package.torch_headers``, also searched for in ``torch_index``, an index or a folder of
    wheels.
    ``for_gpu`` accepts only PyTorch's ROCm build. ``tell`` gets progress messages.

    Facts: ``ref``, ``built_as`` (the name of this one build), ``image_id``, ``os``, ``packages``, ``torch``,
    ``torch_build`` (``ROCm 7.2.1``, ``CPU`` or empty), ``wheel``, ``sha256``, ``base``, ``seconds`` (of the
    build), and ``size`` from ``images.size.measure``. Raises ``ImageError`` if the image fails to build or
    work, or is over its budget.
    """
    own = BASE_PYTHON if job.rocm.provider == "vendor" else Python()
    torch = "" if slim else f"torch=={package.torch_headers}"
    recipe = Recipe(job, wheel, python or own, torch, torch_index, for_gpu)
    log = logs / f"image-runtime-{recipe.version}.log"

    def make(_: Path) -> Mapping[str, Any]:
        begin = time.monotonic()
        tell(f"takes the base image {job.rocm.base}")
        base = ensure_base(job.rocm.base, job.rocm.suite, log=log, run=run)
        ref = f"flash-attn-rocm-runtime:{job.rocm.version}-{tag_of(recipe.inputs)}"
        args = {**recipe.arguments, "BASE": base.ref}
        build = ImageBuild(
            "runtime.Dockerfile", ref, args, log, run, python=recipe.python.program, torch_index=torch_index,
            host=host, fresh=fresh,
        )  # fmt: skip
        found = _build(build, recipe, read_source(checkout, run=run), tell)
        tell("runs the finished image, and weighs it")
        return {**_finish(build, base, recipe, found), "seconds": round(time.monotonic() - begin, 1)}

    return stored_image("runtime-image", recipe.inputs, store, make, run=run)


def _build(build: ImageBuild, recipe: Recipe, source: Source, tell: Callable[[str], None]) -> Torch:
    """Build the image from wheels fetched by its own Python. Returns its torch."""
    with context(FILES, f"the runtime image {recipe.version}", build.log) as folder:
        wheels = folder / "wheels"
        wheels.mkdir()
        tell("installs the HIP runtime and Python")
        system = build.system(folder)
        torch = NO_TORCH
        if recipe.torch:
            tell(f"fetches {recipe.torch}")
            file = build.fetch_torch(system, recipe.torch, wheels)
            torch = Torch(file.name, torch_rocm(file))
        refuse_other_torch(torch, recipe.job.rocm.version, for_gpu=recipe.for_gpu)
        build.fetch(system, ["pip", *([f"/wheels/{torch.wheel}", "numpy"] if torch.wheel else [])], wheels)
        tell(f"installs {recipe.wheel.name}{', torch and NumPy' if torch.wheel else ''}")
        shutil.copy2(recipe.wheel, wheels)
        build.finish(folder, labels=labels(recipe.job, recipe.wheel, torch, source))
    return torch


def refuse_other_torch(torch: Torch, rocm: str, *, for_gpu: bool) -> None:
    """Raise ``ImageError`` for a torch of another ROCm, or a CPU build if the GPU is required."""
    advice = f"give PyTorch's builds for ROCm {rocm}: --torch-index, with an index or a folder of wheels"
    if torch.rocm and torch.rocm.partition(".")[0] != rocm.partition(".")[0]:
        message = f"{torch.wheel} is built for ROCm {torch.rocm}; the image is one of ROCm {rocm}"
        raise ImageError(message, advice=advice)
    if for_gpu and not torch.rocm:
        found = f"{torch.wheel}, a CPU build" if torch.wheel else "no torch"
        message = f"an image for the GPU needs PyTorch's ROCm build; found {found}"
        raise ImageError(message, advice=advice)


def _finish(build: ImageBuild, base: Base, recipe: Recipe, torch: Torch) -> Mapping[str, Any]:
    """Check the image, measure it, and give it the name for users."""
    _check(build.ref, torch, build.log, build.run)
    size = measure(build.ref, base.ref, log=build.log, run=build.run)
    refuse_too_large(build.ref, size)
    name = f"rocm-fa:{recipe.job.rocm.version}{torch.suffix}"
    build.run(["docker", "tag", build.ref, name], log=build.log)
    facts = {**build.facts(base), "ref": name, "built_as": build.ref, "size": size}
    facts |= {"torch": torch.wheel, "torch_build": torch.build}
    return {**facts, "wheel": recipe.wheel.name, "sha256": sha256_file(recipe.wheel)}


def runtime_packages(rocm: Rocm, python: Python) -> str:
    """The packages of the HIP runtime, from the suite of the builder's HIP headers, and of the Python.

    Debian names the runtime's package after its ABI: ROCm's major version. A vendor image already has its
    runtime.
    Raises ``ImageError`` if the ROCm version's packages do not tell the suite of HIP.
    """
    hip: list[tuple[str, tuple[str, ...]]] = []
    if rocm.provider == "debian":
        suites = [suite for suite, names in rocm.packages if HIP_HEADERS in {n.split("=")[0] for n in names}]
        if not suites:
            message = f"ROCm {rocm.version}: no suite installs {HIP_HEADERS}, so where is its HIP runtime?"
            raise ImageError(message, advice=f"add {HIP_HEADERS} to the version's packages in matrix.yaml")
        hip = [(suites[0], (f"libamdhip64-{rocm.version.partition('.')[0]}",))]
    own = ("python3-pip-whl", "ca-certificates")
    if python.suite:
        return package_groups([*hip, (f"{python.suite}+", (python.program,)), ("", own)])
    return package_groups([*hip, ("", ("python3-venv", *own))])


def labels(job: Job, wheel: Path, torch: Torch, source: Source) -> Mapping[str, str]:
    """The image's labels, under the OCI's names where defined.

    Unknown facts, such as a public address of the sources, get no label.
    """
    found = {
        "org.opencontainers.image.title": f"rocm-fa {job.rocm.version}{torch.suffix}",
        "org.opencontainers.image.description": torch.description,
        "org.opencontainers.image.version": wheel.name.split("-")[1],
        "org.opencontainers.image.licenses": "MIT",
        "org.opencontainers.image.source": source.url,
        "org.opencontainers.image.revision": source.revision,
        "flash-attn-rocm.rocm": job.rocm.version,
        "flash-attn-rocm.archs": ",".join(job.archs),
        "flash-attn-rocm.wheel": wheel.name,
        "flash-attn-rocm.wheel.sha256": sha256_file(wheel),
        "flash-attn-rocm.torch": torch.wheel,
        "flash-attn-rocm.torch.build": torch.build or "none",
    }
    return {key: value for key, value in found.items() if value}


def _check(ref: str, torch: Torch, log: Path, run: Runner) -> None:
    """Check the doctor's first line and, with torch, a calculation, as the image's own user, offline."""
    done = docker.run_in(ref, [], log=log, check=False, run=run)
    lines = done.stdout.strip().splitlines() or ["nothing"]
    wanted = f"a {torch.build} build" if torch.wheel else "without a PyTorch"
    if done.returncode not in {0, 1}:  # 1: no attention on a GPU; a build machine may lack one
        message = f"the runtime image {ref} does not run its doctor; it said: {lines[-1]}"
        raise ImageError(message, advice=f"read the log: {log}")
    if wanted not in lines[0]:
        message = f"the runtime image {ref} has another torch than it was given\n"
        message += f"  expected {wanted!r} in the doctor's first line\n  found    {lines[0]!r}"
        raise ImageError(message, advice=f"read the log: {log}")
    if torch.wheel and docker.run_in(ref, [HEALTHY], log=log, check=False, run=run).returncode != 0:
        message = f"the runtime image {ref} is not healthy by its own check, {HEALTHY}"
        raise ImageError(message, advice=f"read the log: {log}")
