"""The inputs of wheels: ``wheel_inputs.toml``, of this checkout or of any commit's sources."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.store import key_of, sha256_tree

FILE = "wheel_builder/build/wheel_inputs.toml"
PROJECT = "pyproject.toml"


@dataclass(frozen=True)
class WheelInputs:
    """``sources`` are files and folders below the checkout, ``pyproject`` dotted names of tables."""

    sources: tuple[str, ...]
    pyproject: tuple[str, ...]
    source_date_epoch: str


def read_inputs(checkout: Path) -> WheelInputs:
    """Read ``wheel_inputs.toml``. Raises ``OSError``, ``LookupError`` or ``ValueError`` for another form."""
    found = tomllib.loads((checkout / FILE).read_text(encoding="utf-8"))
    return WheelInputs(
        tuple(map(str, found["sources"])),
        tuple(map(str, found["pyproject"])),
        str(found["source_date_epoch"]),
    )


def sources_digest(checkout: Path, inputs: WheelInputs) -> str:
    """The sha256 over everything in wheels but device code, as it stands in key, SBOM and provenance."""
    project = tomllib.loads((checkout / PROJECT).read_text(encoding="utf-8"))
    tables = {name: _table(project, name) for name in inputs.pyproject}
    tree = sha256_tree(checkout, [checkout / source for source in inputs.sources])
    return key_of({"files": tree, PROJECT: tables}, length=64)


def _table(project: dict[str, Any], name: str) -> object:
    value: Any = project
    for part in name.split("."):
        value = value.get(part, {})
    return value
