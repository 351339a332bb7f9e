"""Runtimes: the wheel's library loaded beside the real HIP runtime of a ROCm version, in its builder image.

In: a wheel, a builder image.  Out: what was found, and what keeps the wheel from being offered for that ROCm.
There is no GPU: what this shows is that the runtime has all functions, that the library calls it and gets its
answer, and that code objects are of a version which the same release's compiler writes.  No code is loaded to
a device.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder import fatbin, runtime_load
from wheel_builder.audit_rules import HIP_FUNCTION, LIBRARY, TORCH_SHIM
from wheel_builder.docker import NOBODY, Mount, run_in
from wheel_builder.elf import read_elf, section_bytes
from wheel_builder.errors import CommandFailedError
from wheel_builder.model import Job
from wheel_builder.process import Runner, run
from wheel_builder.runtime_rules import runtime_package, runtime_problems
from wheel_builder.store import Artifact, Store, sha256_tree
from wheel_builder.wheelfile import MAX_READ_MIB, read_wheel

PROBE = Path(runtime_load.__file__).parent
ABI_VERSION_BYTE = 8


def load_wheel(
    wheel: Path, job: Job, *, image: Artifact, store: Store, log: Path, run: Runner = run
) -> Artifact:
    """Load the wheel in ``image``, the builder image of ``job``, whose runtime is asked.

    Facts: ``rocm``, ``package`` (the runtime's), ``found`` (what the probe printed, None when it failed) and
    ``problems``, why the wheel does not serve this runtime; none when it does.
    """
    content = read_wheel(wheel, max_mib=MAX_READ_MIB)
    inputs = {
        "sha256": content.sha256,
        "image": image.facts["image_id"],
        "probe": sha256_tree(PROBE, [PROBE]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        library = out / Path(LIBRARY).name
        library.write_bytes(content.files[LIBRARY])
        codes = fatbin.read_fatbin(section_bytes(content.files[LIBRARY], fatbin.SECTION) or b"")
        found, error = _probe(library, image, log, run)
        versions = {code.data[ABI_VERSION_BYTE] for code in codes}
        archs = {code.arch for code in codes}
        problems = [error] if found is None else list(runtime_problems(found, versions, archs, job))
        return {
            "rocm": job.rocm.version,
            "package": runtime_package(image.facts["packages"]),
            "found": found,
            "problems": problems,
        }

    return store.get_or_make("runtime", {**inputs, "archs": list(job.archs)}, make)


def _probe(library: Path, image: Artifact, log: Path, run: Runner) -> tuple[Mapping[str, Any] | None, str]:
    undefined = read_elf(library.read_bytes()).undefined
    functions = {
        "hip": [symbol.name for symbol in undefined if HIP_FUNCTION.fullmatch(symbol.name)],
        "torch": [s.name for s in undefined if TORCH_SHIM.fullmatch(s.name) and not s.weak],
    }
    argv = ["python3", "/probe/probe.py", f"/library/{library.name}", json.dumps(functions)]
    mounts = [Mount(PROBE, "/probe"), Mount(library.parent, "/library")]
    try:
        done = run_in(image.facts["ref"], argv, mounts=mounts, user=NOBODY, log=log, run=run)
    except CommandFailedError as error:
        return None, f"it cannot be loaded there: {error.message.splitlines()[-2].strip(' |')}"
    printed: Mapping[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return printed, ""
