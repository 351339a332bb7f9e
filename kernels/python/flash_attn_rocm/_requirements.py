"""What this package needs from the machine, checked before anything else of it is imported."""

import importlib
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Callable
from types import ModuleType

DISTRIBUTION = "flash-attn-rocm"
TORCH_FLOOR = (2, 10)
TORCH_FLOOR_TEXT = ".".join(map(str, TORCH_FLOOR))
TORCH_PAGE = "https://pytorch.org/get-started/locally/"
# Not a command: pip could take a stranger's package of this name, and this package does not know its index.
REINSTALL = "install the wheel again, with the command that you installed it with and --force-reinstall"


def package_version() -> str:
    """The installed wheel's version, for example ``0.1.0+rocm7.2``."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def wheel_rocm() -> str:
    """The ROCm version that the wheel was built with, or ``""`` when it is not installed as a wheel."""
    return package_version().partition("+rocm")[2]


def install_torch() -> str:
    """Where a PyTorch that this wheel works with is from."""
    # No command: which builds there are for a ROCm version is known to that page only, and changes.
    rocm = wheel_rocm()
    build = f"its build for ROCm {rocm}, or the next" if rocm else "a build for ROCm"
    return (
        f"install PyTorch {TORCH_FLOOR_TEXT} or newer, {build}, with the command that {TORCH_PAGE} "
        "gives for Linux, Pip and ROCm"
    )


def release(version: str) -> tuple[int, int]:
    """``(2, 13)`` of ``"2.13.0+cpu"``."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def platform_problem(system: str, machine: str) -> str:
    """Why the wheel cannot work on this platform, or ``""``."""
    if (system, machine) == ("linux", "x86_64"):
        return ""
    return (
        f"flash_attn_rocm works on Linux x86_64 only, and this is {system} {machine}\n"
        "  next: use it on a Linux x86_64 machine, or in a Linux container"
    )


def torch_version_problem(version: str) -> str:
    """Why this PyTorch is not enough, or ``""``."""
    if release(version) >= TORCH_FLOOR:
        return ""
    return (
        f"flash_attn_rocm needs PyTorch {TORCH_FLOOR_TEXT} or newer, and {version} is installed\n"
        f"  next: {install_torch()}"
    )


def import_torch(load: Callable[[], ModuleType] = lambda: importlib.import_module("torch")) -> ModuleType:
    """PyTorch itself; raises ImportError that says what to do when it is missing or broken."""
    try:
        return load()
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise ImportError(_broken_torch(error)) from error
        message = f"flash_attn_rocm needs PyTorch, which is not installed\n  next: {install_torch()}"
        raise ImportError(message) from error
    except (ImportError, OSError) as error:
        raise ImportError(_broken_torch(error)) from error


def check() -> None:
    """Raise ImportError, in words and with the command to run, unless the package can work here."""
    problem = platform_problem(sys.platform, platform.machine())
    problem = problem or torch_version_problem(import_torch().__version__)
    if problem:
        raise ImportError(problem)


def running_as_module() -> bool:
    """Whether Python was started as ``python -m flash_attn_rocm``."""
    # Python sets sys.argv[0] to "-m" while it looks for the module.
    return sys.argv[:1] == ["-m"] and any(word.endswith("flash_attn_rocm") for word in sys.orig_argv)


def _broken_torch(error: Exception) -> str:
    return f"PyTorch is installed but does not import: {error}\n  next: {install_torch()}"
