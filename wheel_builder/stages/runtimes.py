"""Runtimes: the wheel's library loaded beside the real HIP runtime of a ROCm version, in its builder image.

In: a wheel, a builder image.  Out: what was found, and what keeps the wheel from being offered for that version.
There is no GPU: what this shows is that the runtime has all functions, that the library calls it and gets its
answer, and that code objects are of a version which the same release's compiler writes.  No code is loaded to a
device.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from wheel_builder import runtime_load
from wheel_builder.audit_rules import HIP_FUNCTION, LIBRARY, TORCH_SHIM
from wheel_builder.docker import Mount, run_in
from wheel_builder.elf import read_elf
from wheel_builder.errors import CommandFailedError
from wheel_builder.model import Job
from wheel_builder.process import Runner, run
from wheel_builder.stages.audit import open_subject
from wheel_builder.store import Artifact, Store, sha256_tree
from wheel_builder.wheelfile import read_wheel

NOBODY = "65534:65534"
PROBE = Path(runtime_load.__file__).parent
RUNTIME = "libamdhip64.so"
MAX_READ_MIB = 64.0
ABI_VERSION_BYTE = 8
# ELFABIVERSION_AMDGPU_HSA_V4 is 2.
FIRST_VERSION, FIRST_ABI = 4, 2


def load_wheel(
    wheel: Path, job: Job, *, image: Artifact, store: Store, log: Path, run: Runner = run
) -> Artifact:
    """Load the wheel in ``image``, the builder image of ``job``, whose runtime is asked.

    Facts: ``rocm``, ``package`` (the runtime's), ``found`` (what the probe printed, None when it failed) and
    ``problems``, why the wheel does not serve this runtime; none when it does.
    """
    content = read_wheel(wheel, max_mib=MAX_READ_MIB)
    inputs = {"sha256": content.sha256, "image": image.facts["image_id"], "probe": sha256_tree(PROBE, [PROBE])}

    def make(out: Path) -> Mapping[str, Any]:
        library = out / Path(LIBRARY).name
        library.write_bytes(content.files[LIBRARY])
        codes = [device.code for device in open_subject(content).devices]
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


def runtime_problems(
    found: Mapping[str, Any], versions: Collection[int], archs: Collection[str], job: Job
) -> Iterator[str]:
    """Why a wheel does not serve a runtime; ``versions`` are those of its code objects' ABI."""
    for name, file in sorted(found["functions"].items()):
        if not file.startswith(RUNTIME):
            yield f"{name} is not in its libamdhip64" + (f" but in {file}" if file else "")
    if not found["instances"]:
        yield "the library names no kernel there"
    if "HIP error" not in found["answer"] and "gfx" not in found["answer"]:
        yield f"its runtime did not answer through the library: {found['answer'][:200]}"
    newest, known = max(versions), int(found["code_object_version"])
    if newest > known:
        yield (
            f"its code objects are of version {_code_object(newest)}, but the compiler of ROCm {job.rocm.version} "
            f"writes {_code_object(known)}: its loader may not know them"
        )
    if missing := sorted(set(archs) - set(job.archs)):
        yield f"nothing is built for {', '.join(missing)} with ROCm {job.rocm.version}"


def serves(loads: Mapping[str, Artifact], own: str) -> list[str]:
    """The other ROCm versions that the wheel may be offered for, oldest first as matrix.yaml has them reversed."""
    return [rocm for rocm, load in loads.items() if rocm != own and not load.facts["problems"]]


def words(load: Mapping[str, Any]) -> str:
    """What was shown under one runtime, for the record."""
    if load["problems"]:
        return f"not offered for ROCm {load['rocm']}: {'; '.join(load['problems'])}"
    return (
        f"loaded with {load['package']} and without GPU: the runtime has all {len(load['found']['functions'])} "
        "functions and answers through the library; no code was loaded to a device"
    )


def runtime_package(packages: Mapping[str, str]) -> str:
    """The package that holds libamdhip64, with its version."""
    names = [name for name in packages if name.startswith("libamdhip64-") and not name.endswith("-dev")]
    names += [name for name in packages if name == "hip-runtime-amd"]
    return f"{names[0]} {packages[names[0]]}" if names else "a libamdhip64 of no known package"


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


def _code_object(abi: int) -> int:
    return abi - FIRST_ABI + FIRST_VERSION
