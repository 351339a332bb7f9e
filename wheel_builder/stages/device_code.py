"""Device code: every instance of the support table for one arch, compiled in the builder image.

In: the builder image, an arch, the kernel sources.  Out: ``<instance>.hsaco`` per instance and
``resources.json``.  Depends on neither torch nor Python, so that it is built once per ROCm and arch.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.docker import Mount, run_in
from wheel_builder.errors import CommandFailedError, DeviceCodeError
from wheel_builder.process import Runner, run
from wheel_builder.store import Artifact, Store, sha256_tree

SOURCES = ("kernels/include", "kernels/instances")
RESOURCES = "resources.json"
NOBODY = "65534:65534"


def compile_arch(
    arch: str, *, image: Artifact, checkout: Path, store: Store, jobs: int, log: Path, run: Runner = run
) -> Artifact:
    """Compile all instances of ``arch``; raises ``DeviceCodeError`` with the compiler's last lines.

    Facts: ``arch``, ``instances`` (names), ``cpu_seconds``, ``code_bytes``.
    """
    inputs = {
        "arch": arch,
        "image": image.facts["image_id"],
        "sources": sha256_tree(checkout, [checkout / source for source in SOURCES]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        out.chmod(0o777)
        _compile(arch, image=image, checkout=checkout, out=out, jobs=jobs, log=log, run=run)
        out.chmod(0o755)
        return _facts(arch, out)

    return store.get_or_make("device-code", inputs, make)


def _compile(
    arch: str, *, image: Artifact, checkout: Path, out: Path, jobs: int, log: Path, run: Runner
) -> None:
    argv = [
        "python3",
        "/src/kernels/instances/build.py",
        "--arch",
        arch,
        "--out",
        "/out",
        "--jobs",
        str(jobs),
    ]
    mounts = [Mount(checkout / "kernels", "/src/kernels"), Mount(out, "/out", writable=True)]
    try:
        run_in(image.facts["ref"], argv, mounts=mounts, user=NOBODY, log=log, run=run)
    except CommandFailedError as error:
        title = f"the device code for {arch} does not build"
        raise DeviceCodeError(title, [error.message], advice="mend the kernel and run again") from error


def _facts(arch: str, out: Path) -> Mapping[str, Any]:
    resources = json.loads((out / RESOURCES).read_text(encoding="utf-8"))
    objects = sorted(out.glob("*.hsaco"))
    if not objects:
        title = f"the support table has no instance for {arch}"
        raise DeviceCodeError(title, ["no code object was written"])
    return {
        "arch": arch,
        "instances": [file.stem for file in objects],
        "cpu_seconds": resources["cpu_seconds"],
        "code_bytes": sum(file.stat().st_size for file in objects),
    }
