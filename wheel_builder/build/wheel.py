"""The wheel: device code and host library, packed by cibuildwheel and repaired by auditwheel.

Input: a job, its image, its device code per arch. Output: exactly one wheel with its final tag.
cibuildwheel copies its whole working folder into the builder container. So it gets a folder with only the
files named in ``wheel_inputs.toml``. It cannot build for Windows on Linux, and Windows wheels need no repair:
there ``build`` itself gets the same folder, in the same image.
"""

import hashlib
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import WheelError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import MANIFEST, Artifact, Store, sha256_file
from wheel_builder.build.compiler_cache import CACHE, cache_mount, cache_settings
from wheel_builder.build.device_code import code_objects, pack_archs
from wheel_builder.build.sbom import FILE as SBOM
from wheel_builder.build.sbom import materials_of, sbom_text
from wheel_builder.build.wheel_inputs import PROJECT, WheelInputs, read_inputs, sources_digest
from wheel_builder.build.zstd import read_pins
from wheel_builder.files.device.packing import SETTINGS, SUFFIX
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, owner_flag, remove_own, run_in
from wheel_builder.matrix.model import WINDOWS, Job, Package

# run_in's container options, for cibuildwheel's containers. The project inside is a copy.
CONFINED = f"--network=none --user={NOBODY} --cap-drop=ALL --security-opt=no-new-privileges"


def build_wheel(
    job: Job,
    package: Package,
    *,
    image: Artifact,
    device_code: Sequence[Artifact],
    zstd: Path,
    checkout: Path,
    store: Store,
    log: Path,
    cache: Path | None = None,
    run: Runner = run,
) -> Artifact:
    """Build and repair the job's wheel. Facts: ``wheel`` (file name), ``sha256``, ``bytes``.

    ``zstd`` is the folder of its source, pinned in the checkout. ``cache`` is ccache's folder, shared with
    other runs and machines.

    Raises ``CommandFailedError`` when cibuildwheel fails, and ``WheelError`` unless it leaves one wheel.
    """
    sources = read_inputs(checkout)
    bill, settings = _sbom(job, package, image, checkout, sources), _settings(job, package, image, sources)
    packer = {} if job.for_windows else {"cibuildwheel": metadata.version("cibuildwheel")}
    inputs = {
        "rocm": job.name,
        "archs": list(job.archs),
        "image": image.facts["image_id"],
        "device_code": {str(code.facts["arch"]): code_objects(code) for code in device_code},
        "packing": dict(SETTINGS),
        "sources": sources_digest(checkout, sources),
        "sbom": hashlib.sha256(bill.encode()).hexdigest(),
        "settings": {**packer, **settings},
    }

    def make(out: Path) -> Mapping[str, Any]:
        project = out / "project"
        _stage_project(project, checkout, sources, device_code)
        shutil.copytree(zstd, project / "zstd", ignore=shutil.ignore_patterns(MANIFEST))
        for packed in pack_archs(device_code, store):
            name = f"{packed.facts['arch']}{SUFFIX}"
            shutil.copy2(packed.path / name, project / "bundled" / name)
        (project / SBOM).write_text(bill, encoding="utf-8")
        _bundle(project, image=image, log=log, run=run)
        if job.for_windows:
            _run_build(project, out, settings, image, cache, log=log, run=run)
        else:
            _run_cibuildwheel(project, out, _with_container(settings, image, cache), log=log, run=run)
        shutil.rmtree(project)
        wheel = _only_wheel(out, log)
        return {"wheel": wheel.name, "sha256": sha256_file(wheel), "bytes": wheel.stat().st_size}

    return store.get_or_make("wheel", inputs, make)


def wheel_version(job: Job, checkout: Path) -> str:
    """The wheel's version: ``[tool.flash-attn-rocm] version``, and the job's local label, if any."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    version = str(project["tool"]["flash-attn-rocm"]["version"])
    return f"{version}+{job.label}" if job.label else version


def _sbom(job: Job, package: Package, image: Artifact, checkout: Path, sources: WheelInputs) -> str:
    version, digest = wheel_version(job, checkout), sources_digest(checkout, sources)
    torch = (package.torch_headers, package.torch_headers_sha256)
    return sbom_text(materials_of(version, digest, image.facts, torch, read_pins(checkout)))


def _stage_project(
    project: Path, checkout: Path, sources: WheelInputs, device_code: Sequence[Artifact]
) -> None:
    for source in (PROJECT, *sources.sources):
        _copy(checkout / source, project / source)
    for code in device_code:
        for name in code_objects(code):
            _copy(code.path / name, project / "device" / str(code.facts["arch"]) / name)
    (project / "bundled").mkdir()
    (project / "bundled").chmod(0o777)


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, to)


def _bundle(project: Path, *, image: Artifact, log: Path, run: Runner) -> None:
    argv = ["python3", "/src/kernels/build/instances/bundle.py", "--device", "/src/device", "--out", "/out"]
    mounts = [Mount(project, "/src"), Mount(project / "bundled", "/out", writable=True)]
    run_in(image.facts["ref"], argv, mounts=mounts, user=NOBODY, log=log, run=run)


def _settings(job: Job, package: Package, image: Artifact, sources: WheelInputs) -> dict[str, str]:
    """Settings that affect the wheel, besides those in pyproject.toml: the environment of ``build``, and for
    Linux cibuildwheel's image and Python.
    """
    environment = {
        "FA_DEVICE_CODE": "/project/bundled",
        "FA_ROCM_VERSION": job.name,
        "FA_SBOM": f"/project/{SBOM}",
        "FA_ZSTD": "/project/zstd",
        "SOURCE_DATE_EPOCH": sources.source_date_epoch,
    }
    if job.for_windows:
        return {**environment, "FA_PLATFORM": WINDOWS}
    interpreter, _, _abi = str(image.facts["python_tag"]).partition("-")
    return {
        **environment,
        "AUDITWHEEL_PLAT": package.platform_tag,
        "CIBW_BUILD": f"{interpreter}-manylinux_x86_64",
        "CIBW_MANYLINUX_X86_64_IMAGE": image.facts["ref"],
    }


def _with_container(settings: Mapping[str, str], image: Artifact, cache: Path | None) -> dict[str, str]:
    """The settings plus this machine's: how to make the container, and its compiler cache."""
    create_args, environment = f"{CONFINED} {owner_flag()}", dict(settings)
    if cache:
        create_args += f" --mount {shlex.quote(cache_mount(cache / 'host').flag)}"
        zig = image.facts["python_packages"]["ziglang"]
        environment |= {"FA_CACHE": CACHE, **cache_settings(f"ziglang-{zig}")}
    engine = f"docker; create_args: {create_args}; disable_host_mount: true"
    return {**environment, "CIBW_CONTAINER_ENGINE": engine}


def _run_cibuildwheel(
    project: Path,
    out: Path,
    settings: Mapping[str, str],
    *,
    log: Path,
    run: Runner,
) -> None:
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
        run(
            argv,
            env={**_others(os.environ), **settings},
            cwd=project,
            log=log,
            advice="the log shows the step that failed",
        )
    except BaseException:
        # A stopped cibuildwheel leaves its container behind.
        remove_own(run=run)
        raise


def _others(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without settings of builds: those in pyproject.toml count."""
    own = ("CIBW_", "CCACHE_", "FA_")
    return {name: value for name, value in environ.items() if not name.startswith(own)}


def _run_build(
    project: Path,
    out: Path,
    settings: Mapping[str, str],
    image: Artifact,
    cache: Path | None,
    *,
    log: Path,
    run: Runner,
) -> None:
    """Run ``build`` in the image. A cache keeps zig's C++ library for Windows, missing in the image."""
    python = f"/opt/python/{image.facts['python_tag']}/bin/python"
    build = f"{python} -m build --wheel --no-isolation --skip-dependency-check --outdir /out"
    mounts, env = [Mount(project, "/project"), Mount(out, "/out", writable=True)], dict(settings)
    if cache:
        mounts.append(cache_mount(cache / "zig-windows"))
        env["ZIG_GLOBAL_CACHE_DIR"] = CACHE
    # The build writes next to its sources.
    argv = ["sh", "-c", f"cp -r /project /tmp/project && exec {build} /tmp/project"]
    with open_to_all(out):
        run_in(image.facts["ref"], argv, mounts=mounts, env=env, user=NOBODY, log=log, run=run)


def _only_wheel(out: Path, log: Path) -> Path:
    wheels = sorted(out.glob("*.whl"))
    if len(wheels) != 1:
        message = f"cibuildwheel left {len(wheels)} wheels, expected one: {[w.name for w in wheels]}"
        raise WheelError(message, advice=f"read the log: {log}")
    return wheels[0]
