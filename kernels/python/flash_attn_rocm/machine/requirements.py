"""The package's requirements of the machine, checked before the rest of the package is imported.

Import, calls and the doctor report problems in the same words, as steps.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flash_attn_rocm.values.floors import GLIBC_FLOOR, OLDEST_ROCM, PYTHON_FLOOR, TORCH_FLOOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

DISTRIBUTION = "flash-attn-rocm"
# sys.platform, and the machine as platform.machine() calls it there.
WINDOWS = "win32"
PLATFORMS = (("linux", "x86_64"), (WINDOWS, "AMD64"))
NAMES = {"linux": "libflash_attn_rocm.so", WINDOWS: "flash_attn_rocm.dll"}
LIBRARY = Path(__file__).parents[1] / "_C" / NAMES.get(sys.platform, NAMES["linux"])
UNKNOWN = "unknown"
TORCH_FLOOR_TEXT = ".".join(map(str, TORCH_FLOOR))
# pytorch.org has no builds for ROCm on Windows. AMD has some, and part of them are too old.
TORCH_PAGES = {
    "linux": ("https://pytorch.org/get-started/locally/", "Linux, Pip and ROCm"),
    WINDOWS: ("https://github.com/ROCm/TheRock/blob/main/RELEASES.md", "Windows"),
}
TORCH_PAGE, TORCH_CHOICE = TORCH_PAGES.get(sys.platform, TORCH_PAGES["linux"])
TOO_OLD_ON_WINDOWS = (
    f"; use TheRock's builds for Windows, with PyTorch {TORCH_FLOOR_TEXT} and later: AMD's own wheels for "
    "ROCm 7.2 on Windows have PyTorch 2.9, which is too old"
)
REMOVE = f"python -m pip uninstall --yes {DISTRIBUTION}"
REMOVE_TORCH = "python -m pip uninstall --yes torch"
# A command that opens PyTorch's page: it lists the builds for a ROCm version, and changes.
OPEN_TORCH_PAGE = f"python -m webbrowser {TORCH_PAGE}"
# In words, without a command: pip could take a stranger's package of this name, and the package does not know
# its index.
REINSTALL = "install the wheel again with your install command and --force-reinstall"


@dataclass(frozen=True)
class Step:
    """A problem and its remedy. ``commands`` are shell lines to paste."""

    words: str
    commands: tuple[str, ...] = ()


class RequirementError(ImportError):
    """Why the package fails here: ``steps`` are all reasons."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps = tuple(steps)
        super().__init__("\n".join(["flash_attn_rocm cannot work here:", *numbered(self.steps)]))


def numbered(steps: Iterable[Step]) -> list[str]:
    """The lines of a list of steps."""
    lines = []
    for number, step in enumerate(steps, 1):
        lines.append(f"  {number}. " + step.words.replace("\n", "\n     "))
        lines += [f"     {line}" for line in step.commands]
    return lines


def package_version() -> str:
    """The installed wheel's version: ``0.1.0+rocm7.2``, or ``0.1.0`` of the one for every ROCm version."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def wheel_rocm() -> str:
    """The wheel's ROCm version. ``""`` for a wheel for every version, or without a wheel."""
    return package_version().partition("+rocm")[2]


def is_public(version: str) -> bool:
    """Whether the wheel of this version is the one for every ROCm version from ``OLDEST_ROCM`` on."""
    return version != UNKNOWN and "+" not in version


def install_torch() -> str:
    """Where to get a PyTorch for this wheel."""
    rocm = wheel_rocm()
    build = f"its build for ROCm {rocm}, or the next" if rocm else "a build for ROCm"
    if is_public(package_version()):
        build = f"a build for ROCm {OLDEST_ROCM} or newer"
    return (
        f"install PyTorch {TORCH_FLOOR_TEXT} or newer, {build}, with the command that {TORCH_PAGE} "
        f"gives for {TORCH_CHOICE}{TOO_OLD_ON_WINDOWS if sys.platform == WINDOWS else ''}"
    )


def build_name(rocm: str | None, cuda: str | None) -> str:
    """``ROCm 7.2.53``, ``CUDA 12.8`` or ``CPU``, from torch.version's hip and cuda."""
    if rocm:
        return f"ROCm {rocm}"
    return f"CUDA {cuda}" if cuda else "CPU"


def wrong_build(build: str) -> str:
    """The problem with a PyTorch other than a ROCm build. ``build`` is "CPU" or like "CUDA 12.8"."""
    return f"this PyTorch is a {build} build, which cannot use AMD GPUs"


def release(version: str) -> tuple[int, int]:
    """``(2, 13)`` of ``"2.13.0+cpu"``."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def unmet_platform(system: str, machine: str) -> Step | None:
    """Why the wheel cannot work on this platform."""
    if (system, machine) in PLATFORMS:
        return None
    return Step(
        f"the wheels are for Linux and Windows on x86_64, and this is {system} {machine}: use them on such a "
        "machine, or in a container on one",
        ("python -m platform",),
    )


def unmet_python(version: tuple[int, int]) -> Step | None:
    """Why this Python is too old."""
    if version >= PYTHON_FLOOR:
        return None
    floor = ".".join(map(str, PYTHON_FLOOR))
    return Step(
        f"Python {version[0]}.{version[1]} is too old: the wheel needs {floor} or newer; make an "
        "environment with a newer one, and install PyTorch and the wheel there",
        ("python3 -m venv fresh",),
    )


def unmet_glibc(version: str) -> Step | None:
    """Why this C library is too old. An unknown version passes."""
    parts = version.split(".")
    known = len(parts) >= 2 and all(part.isdigit() for part in parts[:2])
    if not known or (int(parts[0]), int(parts[1])) >= GLIBC_FLOOR:
        return None
    floor = ".".join(map(str, GLIBC_FLOOR))
    return Step(
        f"glibc {version} is too old: the wheel needs {floor} (Debian 10, Ubuntu 20.04, RHEL 8 or newer); "
        "AMD's container has a newer one",
        ("docker pull rocm/pytorch:latest",),
    )


def unmet_torch(version: str) -> Step | None:
    """Why this PyTorch is too old."""
    if release(version) >= TORCH_FLOOR:
        return None
    return Step(
        f"PyTorch {version} is too old: the wheel needs {TORCH_FLOOR_TEXT} or newer; remove it with the "
        "first "
        f"command, then {install_torch()}",
        (REMOVE_TORCH, OPEN_TORCH_PAGE),
    )


def import_torch(load: Callable[[], ModuleType] = lambda: importlib.import_module("torch")) -> ModuleType:
    """PyTorch itself. Raises RequirementError if it is missing or broken."""
    try:
        return load()
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise RequirementError([_broken_torch(error)]) from error
        words = f"PyTorch is not installed: {install_torch()}"
        raise RequirementError([Step(words, (OPEN_TORCH_PAGE,))]) from error
    except (ImportError, OSError) as error:
        raise RequirementError([_broken_torch(error)]) from error


def glibc() -> str:
    """The version of the C library, or ``""``."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2]
    except (AttributeError, ValueError, OSError):
        return ""


def unmet() -> list[Step]:
    """All reasons against the package here."""
    steps = [
        unmet_platform(sys.platform, platform.machine()),
        unmet_python((sys.version_info[0], sys.version_info[1])),
        unmet_glibc(glibc()),
    ]
    try:
        steps.append(unmet_torch(import_torch().__version__))
    except RequirementError as error:
        steps += error.steps
    return [step for step in steps if step]


def check() -> None:
    """Raises RequirementError with all reasons against the package here."""
    if steps := unmet():
        raise RequirementError(steps)


def running_as_module() -> bool:
    """Whether Python was started as ``python -m flash_attn_rocm``."""
    # Python sets sys.argv[0] to "-m" while it looks for the module.
    return sys.argv[:1] == ["-m"] and any(word.endswith("flash_attn_rocm") for word in sys.orig_argv)


def _broken_torch(error: Exception) -> Step:
    words = (
        f"PyTorch is installed but does not import: {error}; remove it with the first command, then "
        f"{install_torch()}"
    )
    return Step(words, (REMOVE_TORCH, OPEN_TORCH_PAGE))
