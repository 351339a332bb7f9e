"""What a run of ``tune`` found so far, in the cache folder, and that only one process tunes a GPU."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flash_attn_rocm.library import tuned
from flash_attn_rocm.library.tuned import Gpu
from flash_attn_rocm.machine import remembered

FORMAT = 1
ENDLESS, FAILED, WRONG, TIMED = "endless", "failed", "wrong", "timed"
DIED = "an earlier process did not end with it: it hangs or crashes, or the process was ended from outside"
MOST_WORDS = 300


class SessionError(RuntimeError):
    """Another process is at it."""


@dataclass
class Session:
    """``kernels``: finished ones. ``refused``: candidates by kernel and row, as in the report.

    ``running``: the candidate that is being launched, so that the next process leaves out one that hangs.
    ``problem``: why this is not on the disk.
    """

    path: Path
    key: Mapping[str, Any]
    kernels: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    running: tuple[str, str] | None = None
    problem: str = ""

    def begin(self, kernel: str, row: str) -> None:
        """Before the first launch of a candidate."""
        self.running = (kernel, row)
        self.save()

    def refuse(self, kernel: str, row: str, state: str, words: str) -> None:
        """The candidate is out."""
        self.refused.setdefault(kernel, {})[row] = {"state": state, "words": words[:MOST_WORDS]}
        self.end()

    def end(self) -> None:
        """The candidate's check has ended."""
        self.running = None
        self.save()

    def finish(self, kernel: str, found: Mapping[str, Any]) -> None:
        """All about a kernel is known."""
        self.kernels[kernel] = found
        self.end()

    def save(self) -> None:
        """Writes everything. On a full disk it stays in memory."""
        values = {"format": FORMAT, "key": self.key, "kernels": self.kernels, "refused": self.refused}
        try:
            remembered.write_text(self.path, json.dumps({**values, "running": self.running}))
            self.problem = ""
        except OSError as error:
            self.problem = f"{self.path} cannot be written: {error.strerror}"


def opened(gpu: Gpu, key: Mapping[str, Any]) -> Session:
    """The session of this machine and these settings, with what an earlier process found."""
    path = tuned.folder() / f"tune-{tuned.key_of(gpu)}.json"
    session = Session(path, json.loads(json.dumps(key)))
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if (found["format"], found["key"]) == (FORMAT, session.key):
            session.kernels, session.refused = dict(found["kernels"]), dict(found["refused"])
            if found["running"]:
                kernel, row = found["running"]
                session.refuse(kernel, row, ENDLESS, DIED)
    return session


def forget(gpu: Gpu) -> None:
    """Start again: without kept rows, findings about them, and progress. Raises OSError."""
    tuned.forget_findings(gpu.arch)
    progress = tuned.folder() / f"tune-{tuned.key_of(gpu)}.json"
    for path in (tuned.file_of(gpu), progress):
        path.unlink(missing_ok=True)
    tuned.kept.cache_clear()


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Inside, a closed terminal or a kill raises KeyboardInterrupt: the row that runs is not to blame.

    A launch that hangs does not let Python raise it.
    """
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def alone(gpu: Gpu) -> Iterator[None]:
    """Inside, no other process tunes such a GPU of this machine. Raises SessionError if one does."""
    path = tuned.folder() / f"tune-{tuned.key_of(gpu)}.pid"
    held = _locked(path)
    try:
        yield
    finally:
        if held:
            path.unlink(missing_ok=True)


def _locked(path: Path) -> bool:
    """Whether the file is ours. False if the folder cannot be written: then nobody can lock."""
    for _ in range(2):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="ascii") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            if pid := _other(path):
                message = (
                    f"process {pid} tunes this GPU already, and times of two would be of both\n"
                    f"  next: wait until it has ended; if it is no tune, remove {path}"
                )
                raise SessionError(message) from None
            path.unlink(missing_ok=True)
        except OSError:
            return False
        else:
            return True
    return False


def _other(path: Path) -> int:
    """The process that holds the lock, 0 if it has ended. In a new container this one may have its number."""
    try:
        pid = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    return pid if pid > 0 and pid != os.getpid() and remembered.alive(pid) else 0
