"""The kernels' support table for the pipeline, read from kernels/generated/table.toml."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

from wheel_builder.base.errors import DeviceCodeError

INSTANCES = Path("kernels/build/instances")
TABLE = Path("kernels/generated/table.toml")


class Kernel(Protocol):
    """One kernel, an ``Instance`` of generate.py. ``head_dim`` is 0 for kernels of any head dim."""

    @property
    def op(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def archs(self) -> tuple[str, ...]: ...
    @property
    def name(self) -> str: ...


Kernels = tuple[Kernel, ...]


def planned_kernels(checkout: Path, archs: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """For each of ``archs`` the names of its kernels in the table.

    Raises ``DeviceCodeError`` with all problems of the table.
    """
    instances = kernels_of(checkout)
    return {arch: frozenset(i.name for i in instances if arch in i.archs) for arch in archs}


def kernels_of(checkout: Path) -> Kernels:
    """The kernels of the table, in its order.

    Raises ``DeviceCodeError`` with all problems of the table.
    """
    generate = _generate(checkout)
    try:
        found: Kernels = generate.load_table(checkout / TABLE)
    except generate.TableError as error:
        raise DeviceCodeError(str(error).splitlines()[0], error.problems) from error
    return found


def _generate(checkout: Path) -> ModuleType:
    # kernels/ is not a package: its scripts also run in the builder image, outside of wheel_builder.
    name = "wheel_builder._kernels_generate"
    spec = importlib.util.spec_from_file_location(name, checkout / INSTANCES / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
