"""Findings of checks at first use, in this process and in the user's cache folder.

One file per kernel family. Its name covers everything a finding depends on: wheel, gfx arch, driver and HIP.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from flash_attn_rocm.machine import driver, requirements, windows
from flash_attn_rocm.machine.environment import CANARY as VARIABLE
from flash_attn_rocm.machine.requirements import LIBRARY

PASSED, FAILED, RUNNING = "passed", "failed", "running"
MASKED, MASKED_GRADIENTS, LATENT, CODED = "masked", "masked gradients", "latent", "coded"
FP8, INT8, ROWS = "fp8", "int8", "rows"
DIED = (
    "an earlier process did not finish their check: they hang or crash, or the process was ended from outside"
)


class Family(NamedTuple):
    """Kernels that are disabled together. ``head_dim`` is 0 for kernels that write into caches.

    ``work`` is separate or fused (the path) for gradients, ``MASKED`` with an attn_mask, ``MASKED_GRADIENTS``
    for gradients with an attn_mask, ``LATENT`` for latent attention, ``CODED`` with a cache of 8 bits,
    ``ROWS`` for latent attention over rows of 656 bytes, ``FP8`` with products of fp8, ``INT8`` with those of
    int8, and "" for all other kernels.
    """

    arch: str
    dtype: str
    head_dim: int
    work: str = ""

    def __str__(self) -> str:
        what = f"{self.dtype}, {f'head_dim {self.head_dim}' if self.head_dim else 'writing into caches'}"
        words = {
            "": what,
            MASKED: f"{what} with an attn_mask",
            MASKED_GRADIENTS: f"gradients of {what} with an attn_mask",
            LATENT: f"latent attention of {what}",
            CODED: f"{what} with a cache of 8 bits",
            ROWS: f"latent attention of {what} over rows of 656 bytes",
            FP8: f"{what} with products of {FP8}",
            INT8: f"{what} with products of {INT8}",
        }
        return words.get(self.work, f"{self.work} gradients of {what}")


@dataclass(frozen=True)
class Finding:
    """``state`` is passed, failed or running. ``words`` describe the failure."""

    state: str
    words: str
    family: str
    arch: str
    wheel: str
    driver: str
    time: str
    pid: int


def folder() -> Path:
    """Where findings are kept."""
    variable = "LOCALAPPDATA" if sys.platform == requirements.WINDOWS else "XDG_CACHE_HOME"
    base = os.environ.get(variable) or Path("~/.cache").expanduser()
    return Path(base) / "flash_attn_rocm" / "canary"


def file_of(family: Family, hip: str, rows: Iterable[str] = ()) -> Path:
    """The file of a family on this machine. ``rows`` are the ids of rows in place of the wheel's.

    Findings about these are apart: they say nothing about the wheel's kernels.
    """
    own = tuple(rows)
    what = "\n".join((*identity(), hip, *map(str, family), *own))
    place = folder().parent / "tuned" if own else folder()
    return place / f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.json"


def identity() -> tuple[str, str]:
    """The wheel and the driver of this machine."""
    return _wheel(), _driver()


def read(path: Path) -> Finding | None:
    """The finding in a file. None if the file is missing or unreadable, or its check still runs elsewhere."""
    try:
        found = Finding(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    if found.state != RUNNING:
        return found
    return None if alive(found.pid) else Finding(**{**asdict(found), "state": FAILED, "words": DIED})


def write(path: Path, family: Family, state: str, words: str = "") -> None:
    """Stores a finding. With a read-only folder it holds for this process only."""
    time = datetime.now(timezone.utc).isoformat(timespec="seconds")
    found = Finding(state, words, str(family), family.arch, _wheel(), _driver(), time, os.getpid())
    with suppress(OSError, RuntimeError):
        write_text(path, json.dumps(asdict(found), indent=1))


def write_text(path: Path, text: str) -> None:
    """Writes a file whole, or leaves the former one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    try:
        aside.write_text(text + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise


def forget(path: Path) -> None:
    """Deletes a finding."""
    with suppress(OSError):
        path.unlink()


def failures() -> Iterator[tuple[Path, Finding]]:
    """The stored failures of this wheel's kernels."""
    with suppress(OSError, RuntimeError):
        for path in sorted(folder().glob("*.json")):
            found = read(path)
            if found and found.state == FAILED and found.wheel == _wheel():
                yield path, found


def in_words(family: Family, found: str, path: Path) -> str:
    """Why these kernels are disabled, and the remedy."""
    return (
        f"the kernels for {family} are disabled on {family.arch}, because a check at first use found: "
        f"{found}. Please report this with the file written by python -m flash_attn_rocm selftest. The "
        f"result is kept in {path}: remove that file to check again; {VARIABLE}=0 disables the check"
    )


class _Known:
    wheel = ""
    driver = ""


def _wheel() -> str:
    # Of the library: the wheel file is gone after the installation.
    if not _Known.wheel:
        _Known.wheel = hashlib.sha256(LIBRARY.read_bytes()).hexdigest()
    return _Known.wheel


def _driver() -> str:
    if not _Known.driver:
        _Known.driver = driver.version(Path("/")) or f"none, {requirements.glibc()}"
    return _Known.driver


def alive(pid: int) -> bool:
    """Whether a process runs."""
    if sys.platform == "win32":
        return windows.process_runs(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
