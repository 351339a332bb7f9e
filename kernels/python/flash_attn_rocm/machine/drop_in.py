"""The ``flash_attn`` or ``flash_attn_interface`` found by an import, before importing it."""

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FLASH_ATTN, FLASH_ATTN_3 = "flash-attn", "flash-attn-3"
MODULES = {FLASH_ATTN: "flash_attn", FLASH_ATTN_3: "flash_attn_interface"}  # by distribution
OURS = "flash_attn_rocm"
Kind = Literal["none", "ours", "another", "damaged"]


@dataclass(frozen=True)
class DropIn:
    """``kind``: ``ours`` (this project's), ``another`` (mostly upstream's), ``none`` or ``damaged``.

    ``damaged``: the distribution is installed, its module is missing. ``folder`` is the module's, or its
    single file.
    """

    kind: Kind = "none"
    version: str = ""
    folder: str = ""
    distribution: str = FLASH_ATTN

    @property
    def module(self) -> str:
        """The module imported by libraries."""
        return MODULES[self.distribution]


def find(distribution: str = FLASH_ATTN) -> DropIn:
    """Decides by the module's content: this project's and another may have equal versions."""
    version = _version(distribution)
    try:
        spec = importlib.util.find_spec(MODULES[distribution])
    except ValueError:  # a module inserted into sys.modules by hand
        spec = None
    # A folder lacking __init__.py belongs to another distribution: flash_attn.cute of flash-attn-4.
    if spec is None or spec.origin is None:
        return DropIn("damaged" if version else "none", version, distribution=distribution)
    place, text = Path(spec.origin), Path(spec.origin)
    if place.name == "__init__.py":
        place = place.parent
        text = place / "flash_attn_interface.py"
    return DropIn("ours" if _is_ours(text) else "another", version, str(place), distribution)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_ours(file: Path) -> bool:
    try:
        return OURS in file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
