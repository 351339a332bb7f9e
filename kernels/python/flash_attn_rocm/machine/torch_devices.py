"""AMD's builds of PyTorch with kernels in packages of their own, one for each arch: torch[device-gfx1151].

Such a build names every arch that it was built for, and has the kernels of those whose package is installed.
"""

import importlib.metadata
import re

# As amd-torch-device-gfx1151==2.12.0+rocm7.14.0, with the condition that the extra is device-gfx1151.
_REQUIREMENT = re.compile(r"""([A-Za-z0-9._-]+).*;.*\bextra\s*==\s*["']device-(gfx\w+)["']""")
AMD_INDEX = "https://repo.amd.com/rocm/whl-multi-arch/"


def offered() -> tuple[str, ...]:
    """The archs whose kernels the installed PyTorch has in packages of their own; none for other builds."""
    return tuple(_packages())


def installed(archs: tuple[str, ...]) -> tuple[str, ...]:
    """Of the archs that PyTorch was built for those whose kernels are there."""
    packages = _packages()
    return tuple(arch for arch in archs if all(map(_is_there, packages.get(arch, ()))))


def _packages() -> dict[str, list[str]]:
    """Arch -> the distributions that have its kernels."""
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
