"""The distributions with candidates for kernels' rows, which ``tune`` times: one for each arch of code."""

import importlib.metadata
from collections.abc import Iterable
from typing import NamedTuple

from flash_attn_rocm.machine.requirements import package_version

INDEX = "<the index of this wheel>"


class Tuning(NamedTuple):
    """A distribution, and its installed version, "" without one."""

    name: str
    version: str = ""


def distribution(arch: str) -> str:
    """The distribution with candidates for the machine code of an arch."""
    return f"flash-attn-rocm-tuning-{arch}"


def install(name: str) -> str:
    """The command that installs the one for this wheel."""
    return f"python -m pip install {name}=={package_version()} --index-url {INDEX}"


def installed(archs: Iterable[str]) -> tuple[Tuning, ...]:
    """Those for the machine code of ``archs``, each once."""
    return tuple(Tuning(name, _version(name)) for name in map(distribution, dict.fromkeys(archs)))


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
