"""Runtimes: the wheel's library loaded with the real HIP runtime of a ROCm version, in its builder image.

Input: a wheel, a builder image. Output: the findings, and reasons against offering the wheel for that ROCm
version. The test runs without a GPU: code is never loaded onto a device. It shows:
- the runtime has all functions
- the library calls it and gets its answer
- its comgr, by which HIP loads code objects, reads all of them
- their version is the one written by the same release's compiler
- its table names these GPUs; HIP loads no code for others
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.audit.rules import HIP_FUNCTION, TORCH_SHIM
from wheel_builder.base.errors import VerifyError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_tree
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.library import LIBRARY, device_code, library_of
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, read_wheel
from wheel_builder.images.docker import NOBODY, Mount, run_in
from wheel_builder.matrix.model import Job
from wheel_builder.tables.archs import served_by
from wheel_builder.verify import runtime_load
from wheel_builder.verify.runtime_rules import runtime_package, runtime_problems

PROBE = Path(runtime_load.__file__).parent
ABI_VERSION_BYTE = 8


def load_wheel(
    wheel: Path, job: Job, *, image: Artifact, store: Store, log: Path, run: Runner = run
) -> Artifact:
    """Load the wheel under the runtime in ``image``, the builder image of ``job``.

    Facts: ``rocm``, ``package`` (the runtime's), ``found`` (the probe's output) and ``problems`` (reasons why
    the wheel does not serve this runtime). Raises ``VerifyError``, and stores nothing, if the probe gave no
    answer. Wheels with equal libraries share the result.
    """
    content = read_wheel(wheel, max_mib=MAX_READ_MIB)
    inputs = {
        "library": hashlib.sha256(library_of(content)).hexdigest(),
        "public": not content.version.local,
        "image": image.facts["image_id"],
        "probe": sha256_tree(PROBE, [PROBE]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        library = out / Path(LIBRARY).name
        library.write_bytes(library_of(content))
        codes = device_code(content)
        with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-") as folder:
            for number, code in enumerate(codes):
                (Path(folder) / f"{code.arch}-{number}").write_bytes(code.data)
            Path(folder).chmod(0o755)
            found = _probe(library, Path(folder), job, image, log, run)
        versions = {code.data[ABI_VERSION_BYTE] for code in codes}
        # A public wheel is also offered for runtimes that support only some of its GPUs.
        own = {code.gfx for code in codes}
        archs = set() if inputs["public"] else own
        gpus = [gpu for arch in job.archs if arch in own for gpu in served_by(arch)]
        problems = list(runtime_problems(found, versions, archs, job, gpus))
        return {
            "rocm": job.rocm.version,
            "package": runtime_package(image.facts["packages"]),
            "found": found,
            "problems": problems,
        }

    archs = {arch: served_by(arch) for arch in job.archs}
    return store.get_or_make("runtime", {**inputs, "archs": archs}, make)


def _probe(
    library: Path, codes: Path, job: Job, image: Artifact, log: Path, run: Runner
) -> Mapping[str, Any]:
    undefined = read_elf(library.read_bytes()).undefined
    functions = {
        "hip": [symbol.name for symbol in undefined if HIP_FUNCTION.fullmatch(symbol.name)],
        "torch": [s.name for s in undefined if TORCH_SHIM.fullmatch(s.name) and not s.weak],
    }
    argv = [
        "python3",
        "/probe/probe.py",
        f"/library/{library.name}",
        job.archs[0],
        json.dumps(functions),
        "/codes",
    ]
    mounts = [Mount(PROBE, "/probe"), Mount(library.parent, "/library"), Mount(codes, "/codes")]
    done = run_in(image.facts["ref"], argv, mounts=mounts, user=NOBODY, check=False, log=log, run=run)
    said = (done.stdout.strip().splitlines() or ["nothing"])[-1]
    if done.returncode != 0:
        raise _no_answer(job, f"status {done.returncode} and {said!r}", log)
    try:
        printed: Mapping[str, Any] = json.loads(said)
    except ValueError as error:
        raise _no_answer(job, f"status 0 and {said!r}", log) from error
    return printed


def _no_answer(job: Job, found: str, log: Path) -> VerifyError:
    message = (
        f"whether the library loads beside the runtime of ROCm {job.rocm.version} was not found out; "
        f"expected the probe's answer, found {found}"
    )
    advice = (
        f"nothing was stored: read {log}, put it right (the engine? memory?) and run the same command again"
    )
    return VerifyError(message, advice=advice)
