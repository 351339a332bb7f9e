"""Which ``flash_attn`` an ``import flash_attn`` would find, without importing it."""

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DISTRIBUTION = "flash-attn"
MODULE = "flash_attn"
OURS = "flash_attn_rocm"
Kind = Literal["none", "ours", "another", "damaged"]


@dataclass(frozen=True)
class DropIn:
    """``kind``: this project's (``ours``), ``another``, mostly upstream's, ``none``, or ``damaged`` where the
    distribution is installed and its module is not there.  ``folder`` is the module's."""

    kind: Kind = "none"
    version: str = ""
    folder: str = ""


def find() -> DropIn:
    """By what the module holds: both may have the same version."""
    version = _version()
    try:
        spec = importlib.util.find_spec(MODULE)
    except ValueError:  # a module that somebody put into sys.modules
        spec = None
    # Without an __init__.py it is a part of another distribution: flash_attn.cute of flash-attn-4.
    if spec is None or spec.origin is None:
        return DropIn("damaged" if version else "none", version)
    folder = Path(spec.origin).parent
    return DropIn("ours" if _is_ours(folder) else "another", version, str(folder))


def _version() -> str:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_ours(folder: Path) -> bool:
    try:
        text = (folder / "flash_attn_interface.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return OURS in text
