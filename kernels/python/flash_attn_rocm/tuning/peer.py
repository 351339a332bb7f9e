"""PyTorch's attention, timed in a process of its own (``peer_process``): a crash or a hang ends only that."""

import json
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

import torch

from flash_attn_rocm.values.bins import Bin

PROCESS = (sys.executable, "-m", "flash_attn_rocm.tuning.peer_process")
LONGEST = 120.0  # seconds of a bin, with the import of PyTorch
MOST_LOST = 3  # processes: each may have taken LONGEST
PATIENCE = 5.0  # seconds until a process that closed its output, or was killed, has ended
END = ""  # of the output: a line has its line break


class Time(NamedTuple):
    """The median milliseconds, or why there are none."""

    ms: float | None
    words: str


@dataclass
class Peer:
    """The process, started by the first bin, and again after a bin that ended it, up to ``MOST_LOST`` times.

    ``argv`` answers a line for each bin, in ``longest`` seconds.
    """

    argv: tuple[str, ...] = PROCESS
    longest: float = LONGEST
    lost: int = 0
    process: "subprocess.Popen[str] | None" = None
    lines: "queue.Queue[str]" = field(default_factory=queue.Queue)

    def timed(self, each: Bin, op: str, where: torch.device, runs: int) -> Time:
        """The time of a bin of the kernels of ``op``."""
        if self.lost >= MOST_LOST:
            return Time(None, f"it ended {MOST_LOST} processes, and no other one is started")
        given = {"bin": each._asdict(), "op": op, "where": str(where), "runs": runs}
        try:
            self.process = self.process or self._started()
        except OSError as error:
            return self._lost(f"its process cannot be started: {error.strerror}")
        try:
            with suppress(OSError):  # of a process that has ended: its output has, too
                _tell(self.process.stdin, given)
            line = self.lines.get(timeout=self.longest)
            return Time(**json.loads(line)) if line != END else self._lost("")
        except queue.Empty:
            return self._lost(f"it did not end within {self.longest:g} s")
        except (ValueError, TypeError):
            return self._lost(f"its process said {line.strip()[:80]!r}")

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            _status(self.process)
            self.process = None

    def _started(self) -> "subprocess.Popen[str]":
        self.lines = queue.Queue()
        process = subprocess.Popen(
            self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        threading.Thread(target=_read, args=(process.stdout, self.lines), daemon=True).start()
        return process

    def _lost(self, words: str) -> Time:
        self.lost += 1
        if not words and self.process is not None:
            words = _end_words(_status(self.process))
        self.close()
        return Time(None, words)


def _tell(stream: IO[str] | None, given: dict[str, Any]) -> None:
    assert stream is not None
    stream.write(json.dumps(given) + "\n")
    stream.flush()


def _read(stream: IO[str], lines: "queue.Queue[str]") -> None:
    """The work of a thread: so waiting can end after a time, on Windows too. Libraries print other lines."""
    with stream:
        for line in stream:
            if line.startswith("{"):
                lines.put(line)
    lines.put(END)


def _status(process: "subprocess.Popen[str]") -> int | None:
    """The status of a process that ends by itself. None if not even a kill ends it: its GPU hangs."""
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        return process.wait(PATIENCE)
    return None


def _end_words(status: int | None) -> str:
    if status is not None and status < 0:
        names = {each.value: each.name for each in signal.Signals}  # others have none
        return f"its process was ended by {names.get(-status, f'signal {-status}')}"
    return f"its process ended with status {status}"
