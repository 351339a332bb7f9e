"""The one way to run another program: argument lists, logged in full, quiet on success."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wheel_builder.base.errors import CommandFailedError, ToolMissingError

TAIL_LINES = 25


@dataclass(frozen=True)
class Completed:
    """A program's output. Its exit status is 0 unless it ran with ``check=False``."""

    stdout: str
    returncode: int


class Runner(Protocol):
    """The type of ``run``: tests pass a fake of it to stages."""

    def __call__(
        self,
        argv: Sequence[str | Path],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        check: bool = True,
        advice: str = "",
    ) -> Completed: ...


def run(
    argv: Sequence[str | Path],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    advice: str = "",
) -> Completed:
    """Run ``argv`` to its end.

    With ``log``, the command and all output are appended to this file, and ``stdout`` is the new text of the
    file. Otherwise standard output is captured, and standard error is kept for the error. Raises
    ``ToolMissingError`` for a missing program. With ``check``, raises ``CommandFailedError`` with the last
    lines, the log's path and ``advice``.
    """
    command = [str(part) for part in argv]
    if log is None:
        done = _start(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, tail = done.stdout, done.stderr or done.stdout
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a+", encoding="utf-8", errors="replace") as stream:
            stream.write(f"+ {shlex.join(command)}\n")
            stream.flush()
            begin = stream.tell()
            done = _start(command, env=env, cwd=cwd, stdout=stream, stderr=subprocess.STDOUT)
            stream.seek(begin)
            output = tail = stream.read()
    if check and done.returncode != 0:
        raise CommandFailedError(_failure(command, done.returncode, tail, log), advice=advice)
    return Completed(output, done.returncode)


def _start(
    command: list[str],
    *,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    stdout: object,
    stderr: object,
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        message = f"{command[0]}: no such program"
        raise ToolMissingError(
            message, advice=f"install {command[0]}, or run scripts/release, which does"
        ) from error


def _failure(command: list[str], returncode: int, output: str, log: Path | None) -> str:
    tail = output.rstrip().splitlines()[-TAIL_LINES:]
    lines = [f"{shlex.join(command)[:300]} ended with status {returncode}"]
    lines += [f"  | {line}" for line in tail]
    if log is not None:
        lines.append(f"  log: {log}")
    return "\n".join(lines)
