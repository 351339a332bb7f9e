"""The ``flash_attn`` or another drop-in's module found by an import, before importing it."""

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple


class Distribution(NamedTuple):
    """``module`` is imported by libraries. ``file`` in its folder tells whose it is, "" for one file.

    ``note``: more words about this project's.
    """

    module: str
    file: str = ""
    note: str = ""


FLASH_ATTN, FLASH_ATTN_3, SAGEATTENTION = "flash-attn", "flash-attn-3", "sageattention"
DISTRIBUTIONS = {
    FLASH_ATTN: Distribution("flash_attn", "flash_attn_interface.py"),
    FLASH_ATTN_3: Distribution("flash_attn_interface"),
    SAGEATTENTION: Distribution("sageattention", "core.py", ", in 8 bits for long calls on some GPUs"),
}
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
        return DISTRIBUTIONS[self.distribution].module

    @property
    def note(self) -> str:
        """More words about this project's."""
        return DISTRIBUTIONS[self.distribution].note


NONE = tuple(DropIn(distribution=each) for each in DISTRIBUTIONS)


def find_all() -> tuple[DropIn, ...]:
    """All of them, the usual first."""
    return tuple(map(find, DISTRIBUTIONS))


def find(distribution: str = FLASH_ATTN) -> DropIn:
    """Decides by the module's content: this project's and another may have equal versions."""
    version, row = _version(distribution), DISTRIBUTIONS[distribution]
    try:
        spec = importlib.util.find_spec(row.module)
    except ValueError:  # a module inserted into sys.modules by hand
        spec = None
    # A folder lacking __init__.py belongs to another distribution: flash_attn.cute of flash-attn-4.
    if spec is None or spec.origin is None:
        return DropIn("damaged" if version else "none", version, distribution=distribution)
    place, text = Path(spec.origin), Path(spec.origin)
    if place.name == "__init__.py":
        place = place.parent
        text = place / row.file
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
