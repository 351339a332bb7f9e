"""The wheel: device code and host library, packed by cibuildwheel and repaired by auditwheel.

In: a job, its image, its device code per arch.  Out: exactly one wheel with its final tag.
cibuildwheel copies its whole working folder into the container of the builder image, so it gets a folder with
nothing but the inputs.
"""

import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheel_builder.compiler_cache import CACHE, cache_mount, cache_settings
from wheel_builder.docker import NOBODY, Mount, owner_flag, remove_own, run_in
from wheel_builder.errors import WheelError
from wheel_builder.model import Job, Package
from wheel_builder.process import Runner, run
from wheel_builder.sbom import FILE as SBOM
from wheel_builder.sbom import materials_of, sbom_text
from wheel_builder.store import Artifact, Store, sha256_file, sha256_tree

SOURCES = ("pyproject.toml", "LICENSE", "kernels", "wheel_builder")
# What the wheel is made of; the rest of SOURCES only works on it.
CONTENT = ("kernels", "LICENSE")
# What run_in gives its containers, for the one that cibuildwheel makes; the project in it is a copy.
CONFINED = f"--network=none --user={NOBODY} --cap-drop=ALL --security-opt=no-new-privileges"
# Times inside the archive say nothing about it; a constant keeps equal contents equal. Zip begins in 1980.
SOURCE_DATE_EPOCH = "315619200"


def build_wheel(
    job: Job,
    package: Package,
    *,
    image: Artifact,
    device_code: Sequence[Artifact],
    checkout: Path,
    store: Store,
    log: Path,
    cache: Path | None = None,
    run: Runner = run,
) -> Artifact:
    """Build and repair the job's wheel.  Facts: ``wheel`` (file name), ``sha256``, ``bytes``.

    ``cache`` is a folder where ccache keeps what was compiled, for other runs and machines.

    Raises ``CommandFailedError`` when cibuildwheel fails and ``WheelError`` when it does not leave one wheel.
    """
    inputs = {
        "rocm": job.rocm.version,
        "archs": list(job.archs),
        "image": image.facts["image_id"],
        "platform_tag": package.platform_tag,
        "device_code": {str(code.facts["arch"]): code.manifest["files"] for code in device_code},
        "sources": sha256_tree(checkout, [checkout / source for source in SOURCES]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        project = out / "project"
        _stage_project(project, checkout, device_code)
        (project / SBOM).write_text(_sbom(job, package, image, checkout), encoding="utf-8")
        _bundle(project, image=image, log=log, run=run)
        _run_cibuildwheel(project, out, job, package, image=image, cache=cache, log=log, run=run)
        shutil.rmtree(project)
        wheel = _only_wheel(out, log)
        return {"wheel": wheel.name, "sha256": sha256_file(wheel), "bytes": wheel.stat().st_size}

    return store.get_or_make("wheel", inputs, make)


def wheel_version(job: Job, checkout: Path) -> str:
    """The wheel's version: ``[tool.flash-attn-rocm] version`` and the ROCm version as local label."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    return f"{project['tool']['flash-attn-rocm']['version']}+{job.id}"


def content_digest(checkout: Path) -> str:
    """The sha256 over the sources that go into wheels, as SBOM and provenance say it."""
    return sha256_tree(checkout, [checkout / path for path in CONTENT])


def _sbom(job: Job, package: Package, image: Artifact, checkout: Path) -> str:
    version, sources = wheel_version(job, checkout), content_digest(checkout)
    return sbom_text(
        materials_of(version, sources, image.facts, package.torch_headers, package.torch_headers_sha256)
    )


def _stage_project(project: Path, checkout: Path, device_code: Sequence[Artifact]) -> None:
    project.mkdir()
    ignore = shutil.ignore_patterns("__pycache__")
    for source in SOURCES:
        if (checkout / source).is_dir():
            shutil.copytree(checkout / source, project / source, ignore=ignore)
        else:
            shutil.copy2(checkout / source, project / source)
    for code in device_code:
        shutil.copytree(code.path, project / "device" / str(code.facts["arch"]))
    (project / "bundled").mkdir()
    (project / "bundled").chmod(0o777)


def _bundle(project: Path, *, image: Artifact, log: Path, run: Runner) -> None:
    argv = ["python3", "/src/kernels/instances/bundle.py", "--device", "/src/device", "--out", "/out"]
    mounts = [Mount(project, "/src"), Mount(project / "bundled", "/out", writable=True)]
    run_in(image.facts["ref"], argv, mounts=mounts, user=NOBODY, log=log, run=run)


def _run_cibuildwheel(
    project: Path,
    out: Path,
    job: Job,
    package: Package,
    *,
    image: Artifact,
    cache: Path | None,
    log: Path,
    run: Runner,
) -> None:
    interpreter, _, _abi = str(image.facts["python_tag"]).partition("-")
    environment = {
        "FA_DEVICE_CODE": "/project/bundled",
        "FA_ROCM_VERSION": job.rocm.version,
        "FA_SBOM": f"/project/{SBOM}",
        "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH,
    }
    repair = "PYTHONPATH={project} python -m wheel_builder repair {wheel} {dest_dir}"
    create_args = f"{CONFINED} {owner_flag()}"
    if cache:
        create_args += f" --mount {shlex.quote(cache_mount(cache / 'host').flag)}"
        zig = image.facts["python_packages"]["ziglang"]
        environment |= {"FA_CACHE": CACHE, **cache_settings(f"ziglang-{zig}")}
    env = os.environ | {
        "CIBW_BUILD": f"{interpreter}-manylinux_x86_64",
        "CIBW_ARCHS": "x86_64",
        "CIBW_MANYLINUX_X86_64_IMAGE": image.facts["ref"],
        "CIBW_CONTAINER_ENGINE": f"docker; create_args: {create_args}; disable_host_mount: true",
        "CIBW_BUILD_FRONTEND": "build; args: --no-isolation --skip-dependency-check",
        # Nothing is installed for the build; its constraints would be written where only root may.
        "CIBW_DEPENDENCY_VERSIONS": "latest",
        "CIBW_ENVIRONMENT": " ".join(f"{name}={value}" for name, value in environment.items()),
        "CIBW_REPAIR_WHEEL_COMMAND": f"{repair} --plat {package.platform_tag}",
        "CIBW_AUDIT_COMMAND": "",
        "CIBW_TEST_COMMAND": "",
    }
    argv: list[str | Path] = [
        sys.executable,
        "-m",
        "cibuildwheel",
        "--platform",
        "linux",
        "--output-dir",
        out.absolute(),
    ]
    try:
        run(argv, env=env, cwd=project, log=log, advice="the log shows the step that failed")
    except BaseException:
        # Stopped, cibuildwheel cannot remove its container itself.
        remove_own(run=run)
        raise


def _only_wheel(out: Path, log: Path) -> Path:
    wheels = sorted(out.glob("*.whl"))
    if len(wheels) != 1:
        message = f"cibuildwheel left {len(wheels)} wheels, expected one: {[w.name for w in wheels]}"
        raise WheelError(message, advice=f"read the log: {log}")
    return wheels[0]
