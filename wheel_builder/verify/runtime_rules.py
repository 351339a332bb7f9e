"""The ROCm versions that a wheel may be offered for, by loading it under their runtimes. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from wheel_builder.base.store import Artifact
from wheel_builder.matrix.model import Job
from wheel_builder.tables.archs import served_by

RUNTIME = "libamdhip64.so"
# ELFABIVERSION_AMDGPU_HSA_V4 is 2.
FIRST_VERSION, FIRST_ABI = 4, 2


def runtime_problems(
    found: Mapping[str, Any],
    versions: Collection[int],
    archs: Collection[str],
    job: Job,
    gpus: Collection[str] = (),
) -> Iterator[str]:
    """Why a wheel does not serve the runtime of ``job``. ``versions`` are its code objects' ABI versions.

    ``archs`` are the archs offered there, ``gpus`` the GPUs served there according to matrix.yaml.
    """
    if "refused" in found:
        yield f"it cannot be loaded there: {found['refused']}"
        return
    for name, file in sorted(found["functions"].items()):
        if not file.startswith(RUNTIME):
            yield f"{name} is not in its libamdhip64" + (f" but in {file}" if file else "")
    if not found["instances"]:
        yield "the library names no kernel there"
    if "HIP error" not in found["answer"] and "gfx" not in found["answer"]:
        yield f"its runtime did not answer through the library: {found['answer'][:200]}"
    yield from _unread(found["codes"])
    if strange := [gpu for gpu in gpus if gpu not in found["gpus"]]:
        yield (
            f"its runtime's table of GPUs lacks {', '.join(strange)}, which matrix.yaml serves with ROCm "
            f"{job.rocm.version}: exclude it there"
        )
    newest, known = max(versions), int(found["code_object_version"])
    if newest > known:
        yield (
            f"its code objects are of version {_code_object(newest)}, but the compiler of ROCm "
            f"{job.rocm.version} writes {_code_object(known)}: its loader may not know them"
        )
    if missing := sorted(set(archs) - set(job.archs)):
        yield f"nothing is built for {', '.join(missing)} with ROCm {job.rocm.version}"


def _unread(codes: Mapping[str, str]) -> Iterator[str]:
    for file, read in sorted(codes.items()):
        arch = file.rpartition("-")[0]
        if not re.fullmatch(rf"amdgcn-amd-amdhsa--{re.escape(arch)} [1-9]\d*", read):
            yield f"its comgr does not read the code for {arch} as the loader needs it: {read}"


def serves(loads: Mapping[str, Artifact], job: Job) -> list[str]:
    """The further ROCm versions that the wheel of ``job`` may be offered for.

    The public wheel has no version of its own. It also serves versions with a runtime like one that loaded
    it.
    """
    own = "" if job.public else job.rocm.version
    loaded = [rocm for rocm, load in loads.items() if rocm != own and not load.facts["problems"]]
    return [*loaded, *like(loads, job)]


def like(loads: Mapping[str, Artifact], job: Job) -> dict[str, str]:
    """ROCm versions that the public wheel serves by likeness of their runtime, each with the reason."""
    return {
        version: f"not loaded: PyTorch's builds for it bring a runtime of the same ABI as ROCm {rocm}'s"
        for rocm, versions in (job.public.like if job.public else ())
        if rocm in loads and not loads[rocm].facts["problems"]
        for version in versions
    }


def accepted(loads: Mapping[str, Artifact], arch: str) -> dict[str, list[str]]:
    """For each runtime that the wheel loads under, the GPUs in its table that run the code of ``arch``."""
    return {
        rocm: [gpu for gpu in served_by(arch) if gpu in load.facts["found"]["gpus"]]
        for rocm, load in loads.items()
        if not load.facts["problems"]
    }


def words(load: Mapping[str, Any]) -> str:
    """The result under one runtime, in words for the record."""
    if load["problems"]:
        return f"not offered for ROCm {load['rocm']}: {'; '.join(load['problems'])}"
    functions, codes = len(load["found"]["functions"]), len(load["found"]["codes"])
    return (
        f"loaded with {load['package']} and without GPU: the runtime has all {functions} functions and "
        f"answers through the library, and its comgr reads all {codes} code objects; no code was loaded to a "
        "device"
    )


def runtime_package(packages: Mapping[str, str]) -> str:
    """The package of libamdhip64, with its version."""
    names = [name for name in packages if name.startswith("libamdhip64-") and not name.endswith("-dev")]
    names += [name for name in packages if name == "hip-runtime-amd"]
    return f"{names[0]} {packages[names[0]]}" if names else "a libamdhip64 of no known package"


def _code_object(abi: int) -> int:
    return abi - FIRST_ABI + FIRST_VERSION
