"""``--help`` of the command line without the Python tools: it needs only Python itself.

Commands import packages that may not be installed yet. Their help is independent of them. So a stand-in
module replaces each missing one, and its names accept every use during import. No command runs.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

TOOLS = ("elftools", "packaging", "pydantic", "pydantic_core", "rich", "torch_abi_audit", "yaml", "zstandard")


class Anything:
    """A base class, a decorator, or a stored value."""

    def __init__(self, *_given: object, **_named: object) -> None: ...

    def __init_subclass__(cls, **_named: object) -> None: ...

    def __class_getitem__(cls, _item: object) -> "type[Anything]":
        return cls

    def __getattr__(self, _name: str) -> "Anything":
        return self

    def __call__(self, *given: object, **_named: object) -> object:
        return given[0] if given and callable(given[0]) else self


class StandIn(ModuleType):
    """A module that has every name, and is a package."""

    __path__: list[str] = []  # noqa: RUF012 - what Python calls it

    def __getattr__(self, name: str) -> type[Anything]:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Anything,), {})


class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes after all other finders, so stand-ins replace only missing modules."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in TOOLS:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


def main() -> int:
    """Print the help for the command line's words."""
    sys.meta_path.append(Missing())
    from wheel_builder.cli.main import main as command_line  # noqa: PLC0415 - what it imports may be missing

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
