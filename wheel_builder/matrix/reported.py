"""What a report from hardware says of its software and of its run, as far as it contradicts itself; pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

# As torch.version.hip, behind the word that the package puts before it.
ROCM_BUILD = re.compile(r"ROCm (\d+\.\d+)(\.[0-9A-Za-z.+-]{1,40})?", re.ASCII)
# Local labels of ROCm's builds of PyTorch: AMD's and PyTorch's own, and those of who compiles it.
TORCH_LABEL = re.compile(r"(rocm|git)[0-9a-z.]*", re.ASCII)
LABEL_ROCM = re.compile(r"rocm(\d+\.\d+)(\.|$)", re.ASCII)
# What the package says of a driver on Linux, WSL2 and Windows; "" where it knows none.
WORD = r"[0-9A-Za-z.+~_-]{1,80}"
DRIVER = re.compile(
    rf"|amdgpu (of Linux )?{WORD}|that of Windows \(drivers [0-9a-f]{{12}}\), ({WORD}|no librocdxg)"
    r"|AMD [0-9.]{1,40}(, AMD [0-9.]{1,40})*",
    re.ASCII,
)
TORCH, BUILD, PYTHON = ("a version of PyTorch such as 2.13.0+rocm7.2", "a build such as ROCm 7.2.53210",
                        "a version such as 3.11.2")  # fmt: skip


def version_of(text: str) -> Version | None:
    """A version, None for what is none; Python's own may end with a plus sign."""
    try:
        return Version(text.removesuffix("+"))
    except InvalidVersion:
        return None


def torch_problems(torch: str, build: str) -> Iterator[str]:
    """What is no PyTorch for AMD GPUs, or not the build that it calls itself."""
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
    """Why the package writes nothing like this of a driver."""
    if DRIVER.fullmatch(driver):
        return ""
    return f"driver: expected one such as 'amdgpu 6.12.12', found {driver[:40]!r}"


def torch_floor_problem(torch: str, floor: str) -> str:
    """Why the wheel does not import with a PyTorch; its development versions count as the release."""
    version = version_of(torch)
    if version is None or version.release[:2] >= Version(floor).release[:2]:
        return ""
    return f"torch: expected {floor} or newer, without which the wheel does not import, found {torch}"


def python_problem(python: str, allowed: SpecifierSet) -> str:
    """Why the wheel cannot be installed for a Python; ``allowed`` is what its METADATA requires."""
    version = version_of(python)
    if version is None or version.release[0] != 3:
        return f"python: expected {PYTHON}, found {python[:40]!r}"
    # A candidate of a release is as new as the release.
    if allowed.contains(version.base_version):
        return ""
    return f"python: expected {allowed}, as the wheel asks for, found {python[:40]}"


def platform_problem(os: str, *, for_windows: bool) -> str:
    """Why the wheel's library is none of that system."""
    if (os.partition(" ")[0] == "Windows") is for_windows:
        return ""
    return f"os: the wheel is for {'Windows' if for_windows else 'Linux'}, found {os[:40]!r}"


def begin_problem(ended: datetime, seconds: float, built: datetime) -> str:
    """Why a run cannot be of a wheel that was built at a time; ``time`` in a report is its end."""
    begun = ended.timestamp() - seconds
    # A report's time has no fractions of a second.
    if begun + 1 >= built.timestamp():
        return ""
    return (
        f"time: a run of {seconds:g} s that ended at {ended.isoformat()} began before its wheel was there, "
        f"which was built at {built.isoformat()}"
    )


def error_problem(worst: Iterable[float]) -> str:
    """Numbers of 16 bits are never all those of float64; ``worst`` has the worst error of each kernel."""
    errors = list(worst)
    exact = errors and not any(errors)
    return "kernels: not one has any error, expected those of rounding to 16 bits" if exact else ""


def same_run(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two reports are of one run: its numbers, or when it was and how long it took, are equal.

    The medians of a hundred kernels are never those of another run.
    """
    when = ("time", "seconds", "device", "library_sha256")
    return one["kernels"] == other["kernels"] or all(one[key] == other[key] for key in when)
