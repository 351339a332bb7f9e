"""Contradictions in a hardware report about its software and its run. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

# torch.version.hip after the package's prefix.
ROCM_BUILD = re.compile(r"ROCm (\d+\.\d+)(\.[0-9A-Za-z.+-]{1,40})?", re.ASCII)
# Local labels of PyTorch's ROCm builds: AMD's, PyTorch's, and those built from source.
TORCH_LABEL = re.compile(r"(rocm|git)[0-9a-z.]*", re.ASCII)
LABEL_ROCM = re.compile(r"rocm(\d+\.\d+)(\.|$)", re.ASCII)
# The package's words for a driver on Linux, WSL2 and Windows, "" if unknown.
WORD = r"[0-9A-Za-z.+~_-]{1,80}"
DRIVER = re.compile(
    rf"|amdgpu (of Linux )?{WORD}|that of Windows \(drivers [0-9a-f]{{12}}\), ({WORD}|no librocdxg)"
    r"|AMD [0-9.]{1,40}(, AMD [0-9.]{1,40})*",
    re.ASCII,
)
TORCH, BUILD, PYTHON = ("a version of PyTorch such as 2.13.0+rocm7.2", "a build such as ROCm 7.2.53210",
                        "a version such as 3.11.2")  # fmt: skip


def version_of(text: str) -> Version | None:
    """A version, or None. Python's own may end with a plus sign."""
    try:
        return Version(text.removesuffix("+"))
    except InvalidVersion:
        return None


def torch_problems(torch: str, build: str) -> Iterator[str]:
    """Reasons why this is no PyTorch for AMD GPUs, or another build than it claims."""
    version, built = version_of(torch), ROCM_BUILD.fullmatch(build)
    if version is None:
        yield f"torch: expected {TORCH}, found {torch[:40]!r}"
    if built is None:
        yield f"torch_build: expected {BUILD}, found {build[:40]!r}"
    if version is None or not (label := version.local or ""):
        return
    if not TORCH_LABEL.fullmatch(label):
        yield f"torch: +{label[:40]} is no build for ROCm"
    elif built and (of := LABEL_ROCM.match(label)) and of[1] != built[1]:
        yield f"torch: it is built for ROCm {of[1]}, and torch_build says {build}"


def driver_problem(driver: str) -> str:
    """Why the package would never write this about a driver."""
    if DRIVER.fullmatch(driver):
        return ""
    return f"driver: expected one such as 'amdgpu 6.12.12', found {driver[:40]!r}"


def torch_floor_problem(torch: str, floor: str) -> str:
    """Why the wheel fails to import with a PyTorch. Development versions count as the release."""
    version = version_of(torch)
    if version is None or version.release[:2] >= Version(floor).release[:2]:
        return ""
    return f"torch: expected {floor} or newer, without which the wheel does not import, found {torch}"


def python_problem(python: str, allowed: SpecifierSet) -> str:
    """Why the wheel cannot be installed for a Python. ``allowed`` is its METADATA's requirement."""
    version = version_of(python)
    if version is None or version.release[0] != 3:
        return f"python: expected {PYTHON}, found {python[:40]!r}"
    # A release candidate counts as the release.
    if allowed.contains(version.base_version):
        return ""
    return f"python: expected {allowed}, as the wheel asks for, found {python[:40]}"


def platform_problem(os: str, *, for_windows: bool) -> str:
    """Why the wheel's library is for another system."""
    if (os.partition(" ")[0] == "Windows") is for_windows:
        return ""
    return f"os: the wheel is for {'Windows' if for_windows else 'Linux'}, found {os[:40]!r}"


def begin_problem(ended: datetime, seconds: float, built: datetime) -> str:
    """Why a run began before its wheel was built. ``time`` in a report is the run's end."""
    begun = ended.timestamp() - seconds
    # Times in reports have whole seconds.
    if begun + 1 >= built.timestamp():
        return ""
    return (
        f"time: a run of {seconds:g} s that ended at {ended.isoformat()} began before its wheel was there, "
        f"which was built at {built.isoformat()}"
    )


def error_problem(worst: Iterable[float]) -> str:
    """16-bit results always differ somewhere from float64. ``worst`` has the worst error of each kernel."""
    errors = list(worst)
    exact = errors and not any(errors)
    return "kernels: not one has any error, expected those of rounding to 16 bits" if exact else ""


def same_run(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two reports are of one run: equal numbers, or equal time and duration.

    The medians of a hundred kernels never repeat in another run.
    """
    when = ("time", "seconds", "device", "library_sha256")
    return one["kernels"] == other["kernels"] or all(one[key] == other[key] for key in when)
