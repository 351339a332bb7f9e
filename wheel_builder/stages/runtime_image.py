"""Runtime image: ``rocm-fa:<ROCm version>``, which holds the HIP runtime, torch and the finished wheel.

In: a job and its finished wheel.  Out: an image whose ``docker run`` prints the doctor's report, or runs the
command that it is given, as a user without rights.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheel_builder import docker
from wheel_builder.bases import ensure_base
from wheel_builder.errors import ImageError
from wheel_builder.hostenv import HostSettings
from wheel_builder.image_build import ImageBuild, context, file_digests, package_groups, stored_image, tag_of
from wheel_builder.model import Job, Package, Rocm
from wheel_builder.process import Runner, run
from wheel_builder.store import Artifact, Store, sha256_file

FILES = ("runtime.Dockerfile", "install_packages.sh", "install_venv.sh", "runtime_entrypoint.sh")
HIP_HEADERS = "libamdhip64-dev"


@dataclass(frozen=True)
class Python:
    """The Python of the image: a torch wheel must exist for it.

    ``suite`` is the Debian suite with its package ``program``; empty: the base image's own.
    """

    program: str = "python3.11"
    suite: str = "bookworm"


BASE_PYTHON = Python(program="python3", suite="")


def build_runtime_image(
    job: Job,
    wheel: Path,
    store: Store,
    *,
    package: Package,
    logs: Path,
    python: Python | None = None,
    torch: str = "",
    torch_index: str = "",
    host: HostSettings | None = None,
    fresh: bool = False,
    run: Runner = run,
) -> Artifact:
    """The runtime image of the job's ROCm version with this wheel in it, named ``rocm-fa:<version>``.

    ``python`` is ``Python()`` for Debian images and the image's own for vendor images when None; ``torch`` a
    requirement, the release of ``package.torch_headers`` when empty, looked for at ``torch_index`` too.
    Facts: ``ref``, ``built_as`` (a name of this very build), ``image_id``, ``os``, ``packages``, ``torch``,
    ``wheel``, ``sha256``, ``base``.
    Raises ``ImageError`` when it does not build.
    """
    log = logs / f"image-runtime-{job.id}.log"
    python = python or (BASE_PYTHON if job.rocm.provider == "vendor" else Python())
    torch = torch or f"torch=={package.torch_headers}"
    args = {"PACKAGES": runtime_packages(job.rocm, python), "PYTHON": python.program}
    inputs = {
        "base": job.rocm.base,
        "suite": job.rocm.suite,
        "args": args,
        "python": asdict(python),
        "torch": torch,
        "torch_index": torch_index,
        "wheel": {"name": wheel.name, "sha256": sha256_file(wheel)},
        "files": file_digests(FILES),
    }

    def make(_: Path) -> Mapping[str, Any]:
        base = ensure_base(job.rocm.base, job.rocm.suite, log=log, run=run)
        ref = f"flash-attn-rocm-runtime:{job.rocm.version}-{tag_of(inputs)}"
        build = ImageBuild(
            "runtime.Dockerfile",
            ref,
            {**args, "BASE": base.ref},
            log,
            run,
            python=python.program,
            torch_index=torch_index,
            host=host,
            fresh=fresh,
        )
        with context(FILES, f"the runtime image of ROCm {job.rocm.version}", log) as folder:
            wheels = folder / "wheels"
            wheels.mkdir()
            system = build.system(folder)
            found = build.fetch_torch(system, torch, wheels)
            build.fetch(system, [f"/wheels/{found.name}", "numpy", "pip"], wheels)
            shutil.copy2(wheel, wheels)
            build.finish(folder, labels=labels(job, wheel, found))
        _check(ref, log, run)
        name = f"rocm-fa:{job.rocm.version}"
        run(["docker", "tag", ref, name], log=log)
        facts = {**build.facts(base), "ref": name, "built_as": ref, "torch": found.name}
        return {**facts, "wheel": wheel.name, "sha256": sha256_file(wheel)}

    return stored_image("runtime-image", inputs, store, make, run=run)


def runtime_packages(rocm: Rocm, python: Python) -> str:
    """The HIP runtime, from the suite that the builder's HIP headers are from, and the Python.

    Debian names the runtime's package after its ABI, which is ROCm's major version.  A vendor image has its
    runtime.  Raises ``ImageError`` when the ROCm version's packages do not say where HIP is from.
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


def labels(job: Job, wheel: Path, torch: Path) -> Mapping[str, str]:
    """The image's labels: what is in it, by the names that the OCI gives them where it has some."""
    return {
        "org.opencontainers.image.title": f"rocm-fa {job.rocm.version}",
        "org.opencontainers.image.description": "FlashAttention for AMD GPUs, with the HIP runtime and torch",
        "org.opencontainers.image.version": wheel.name.split("-")[1],
        "org.opencontainers.image.licenses": "MIT",
        "flash-attn-rocm.rocm": job.rocm.version,
        "flash-attn-rocm.archs": ",".join(job.archs),
        "flash-attn-rocm.wheel": wheel.name,
        "flash-attn-rocm.wheel.sha256": sha256_file(wheel),
        "flash-attn-rocm.torch": torch.name,
    }


def _check(ref: str, log: Path, run: Runner) -> None:
    """The doctor answers, and so does a command, as the image's own user and without network."""
    for argv in ([], ["python", "-c", "import flash_attn_rocm"]):
        done = docker.run_in(ref, argv, log=log, check=False, run=run)
        if done.returncode != 0:
            said = (done.stdout.strip().splitlines() or ["nothing"])[-1]
            message = f"the runtime image {ref} does not run {argv or 'its doctor'}; it said: {said}"
            raise ImageError(message, advice=f"read the log: {log}")
