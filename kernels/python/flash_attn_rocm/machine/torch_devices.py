"""The archs that a build of PyTorch has kernels for, out of those that it names.

AMD's builds have kernels in separate packages, one per arch: torch[device-gfx1151]. Builds with a rocBLAS of
their own name gfx906, whose matrix products this rocBLAS has no longer.
"""

import importlib.metadata
import re
from pathlib import Path

# Matches amd-torch-device-gfx1151==2.12.0+rocm7.14.0 under the condition extra == "device-gfx1151".
_REQUIREMENT = re.compile(r"""([A-Za-z0-9._-]+).*;.*\bextra\s*==\s*["']device-(gfx\w+)["']""")
AMD_INDEX = "https://repo.amd.com/rocm/whl-multi-arch/"


def offered() -> tuple[str, ...]:
    """The archs with separate kernel packages for the installed PyTorch. Empty for other builds."""
    return tuple(_packages())


def installed(archs: tuple[str, ...]) -> tuple[str, ...]:
    """The subset of PyTorch's archs with installed kernels."""
    packages = _packages()
    return tuple(arch for arch in archs if all(map(_is_there, packages.get(arch, ()))))


def with_products(archs: tuple[str, ...], library: Path) -> tuple[str, ...]:
    """The subset of archs with matrix products in this folder of rocBLAS, all if there is no such folder."""
    names = " ".join(file.name for file in library.iterdir()) if library.is_dir() else ""
    return tuple(arch for arch in archs if not names or re.search(rf"{arch}(?![0-9a-z])", names))


def _packages() -> dict[str, list[str]]:
    """Arch -> distributions with its kernels."""
    try:
        requirements = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for requirement in requirements:
        if match := _REQUIREMENT.match(requirement):
            found.setdefault(match[2], []).append(match[1])
    return found


def _is_there(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
