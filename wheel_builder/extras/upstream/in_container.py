"""Work on upstream's sources in the builder image, by an unprivileged user with networking off.

    python3 in_container.py generate SDIST OUT CK GENERATOR DIRECTIONS OPTION...
    python3 in_container.py hipify SDIST OUT FOLDER UTILS
    python3 in_container.py pack SDIST OUT EXTENSION MODULE VERSION TAG
    python3 in_container.py compile COST LIMIT COMMAND...

``generate`` unpacks CK of the source distribution below OUT/ck and runs its generator to write OUT/kernels.
``hipify`` unpacks FOLDER to OUT. Then PyTorch's hipify in UTILS translates its C++ files from CUDA's names to
HIP's (x.cpp to x.hip), as in PyTorch's build of an extension. ``pack`` makes a wheel of upstream's Python
files and the extension, named MODULE in the wheel. ``compile`` runs a command and writes its CPU-seconds and
the memory of its largest process to COST. Each process may take at most LIMIT CPU-seconds (0: unlimited).
Standard library only, except for hatchling in ``pack``.
"""

import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

# The names and requirements of upstream's setup.py, which would need torch and compilers to state them.
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "flash-attn"
version = "{version}"
description = "Flash Attention: Fast and Memory-Efficient Exact Attention"
readme = "README.md"
dependencies = ["torch", "einops"]
[tool.hatch.build.targets.wheel]
packages = ["flash_attn"]
force-include = {{ "{extension}" = "{module}" }}
[tool.hatch.build.targets.wheel.hooks.custom]
"""
HOOK = """\
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = "{tag}"
"""


def unpack(sdist: str, into: Path, below: str) -> None:
    """Unpack the files in the folder ``below`` of a source distribution."""
    with tarfile.open(sdist, "r:gz") as archive:
        members = []
        for member in archive:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if path.is_relative_to(below) and (member.isfile() or member.isdir()):
                members.append(member.replace(name=str(path.relative_to(below)), deep=False))
        # Refuses absolute names and .., still possible inside the names above.
        archive.extractall(into, members, filter="data")


def generate(sdist: str, out: str, ck: str, generator: str, directions: str, *options: str) -> int:
    """Unpack, then generate the kernels of each direction."""
    folder, kernels = Path(out, "ck"), Path(out, "kernels")
    unpack(sdist, folder, ck)
    for direction in directions.split(","):
        argv = [sys.executable, str(folder / generator), "--api", direction, "--output_dir", str(kernels)]
        subprocess.run([*argv, *options], check=True)
    return 0


def hipify(sdist: str, out: str, folder: str, utils: str) -> int:
    """Unpack, then translate each C++ file and the headers in its folder."""
    unpack(sdist, Path(out), folder)
    # hipify writes x.hip for x.cu. Upstream's setup.py renames its files for the same reason.
    sources = [str(file.rename(file.with_suffix(".cu"))) for file in sorted(Path(out).glob("*.cpp"))]
    sys.path.insert(0, utils)
    importlib.import_module("hipify.hipify_python").hipify(
        project_directory=out, output_directory=out, includes=[f"{out}/*"], extra_files=sources,
        show_progress=False, is_pytorch_extension=True, hipify_extra_files_only=True,
    )  # fmt: skip
    return 0


def pack(sdist: str, out: str, extension: str, module: str, version: str, tag: str) -> int:
    """Unpack, and have hatchling pack upstream's Python files and the extension."""
    project = Path(out, "project")
    unpack(sdist, project, "")
    (project / "pyproject.toml").write_text(
        PROJECT.format(version=version, extension=extension, module=module)
    )
    (project / "hatch_build.py").write_text(HOOK.format(tag=tag))
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", out]
    subprocess.run(argv, check=True, cwd=project)
    shutil.rmtree(project)
    return 0


def compile_one(cost: str, limit: str, *command: str) -> int:
    """The command's exit status."""
    if seconds := int(limit):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    child = subprocess.Popen(command)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    measured = {"cpu_seconds": round(used.ru_utime + used.ru_stime, 1), "peak_mib": used.ru_maxrss // 1024}
    Path(cost).write_text(json.dumps(measured), encoding="ascii")
    return child.returncode


VERBS: Mapping[str, Callable[..., int]] = {
    "generate": generate,
    "hipify": hipify,
    "pack": pack,
    "compile": compile_one,
}

if __name__ == "__main__":
    sys.exit(VERBS[sys.argv[1]](*sys.argv[2:]))
