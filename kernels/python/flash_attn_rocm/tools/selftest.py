"""``python -m flash_attn_rocm selftest``: the kernels on this machine's GPU against float64.

The calls are the corpus of fuzz cases passed by every wheel on an ISA emulator before publication. The wheel
carries the corpus, its generator and its judge in ``flash_attn_rocm.suite``.
"""

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from flash_attn_rocm.library import host
from flash_attn_rocm.suite import corpus, fuzz
from flash_attn_rocm.suite.target import EMULATED, ON_HARDWARE, Shown, Target, arch
from flash_attn_rocm.tools import terminal, this_machine
from flash_attn_rocm.values.given import Given

SCHEMA = 1
HEADS = ("kernel", "calls", "failed", "worst error", "allowed", "log-sum-exp", "ms")
MOST_WORDS = 3  # failures quoted per kernel in a report


@dataclass
class Kernel:
    """The results of one kernel's calls. ``failures`` are in words, ``seconds`` one number per call."""

    calls: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class NoGpuError(RuntimeError):
    """There is no GPU to test."""


def run(
    kernels: Sequence[str] = (),
    calls: int = 0,
    runtime: Given = None,  # reports launches: HIP runtimes do not, an emulator may
) -> dict[str, Any]:
    """The report of all kernels or the named ones, with at most ``calls`` calls each. 0 is all."""
    where = this_machine.device()
    found = this_machine.describe(where)
    if not found["arch"]:
        message = "selftest needs an AMD GPU that PyTorch can use\n  next: python -m flash_attn_rocm doctor"
        raise NoGpuError(message)
    target, code = Target(runtime, Shown()), host.code_of(found["arch"])
    begin = time.perf_counter()
    cases = _cases(kernels, calls)
    shown: dict[str, Kernel] = {}
    for name, number in terminal.progress(cases, "selftest"):
        call = fuzz.made(fuzz.draw(corpus.kernel_of(name), number), where)
        _check(call, f"{name} {number}", target, shown.setdefault(name, Kernel()), where)
    return {
        "schema": SCHEMA,
        "how": ON_HARDWARE if where.type == "cuda" else EMULATED,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **found,
        "complete": not kernels and not calls,
        "seconds": round(time.perf_counter() - begin, 3),
        "kernels": {
            name: _row(name, kernel, target.shown) | {"row": host.row_ids().get((code, name), "")}
            for name, kernel in sorted(shown.items())
        },
    }


def passed(report: dict[str, Any]) -> bool:
    """Whether all calls passed, and at least one kernel was called."""
    return bool(report["kernels"]) and not any(row["failed"] for row in report["kernels"].values())


def table(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    rows = [HEADS]
    for name, row in report["kernels"].items():
        numbers = (f"{row[key]:.3g}" for key in ("worst_error", "allowed", "worst_lse_error", "median_ms"))
        rows.append((name, str(row["calls"]), str(row["failed"]), *numbers))
    words = [f"{name}: {each}" for name, row in report["kernels"].items() for each in row["failures"]]
    failed = sum(row["failed"] > 0 for row in report["kernels"].values())
    verdict = (
        "every kernel passed" if passed(report) else f"{failed} of {len(report['kernels'])} kernels failed"
    )
    title = f"{report['device']}, {report['arch']}, flash_attn_rocm {report['package']}: {report['how']}"
    return "\n".join(
        [title, "", *terminal.table(rows), "", *words, f"{verdict}, in {report['seconds']:.0f} s"]
    )


def write(report: dict[str, Any], file: Path) -> None:
    """The report as JSON."""
    file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _cases(kernels: Sequence[str], calls: int) -> list[tuple[str, int]]:
    every: dict[str, list[int]] = {}
    for kernel, number in corpus.corpus_of(arch()):
        every.setdefault(str(kernel), []).append(number)
    if unknown := sorted(set(kernels) - every.keys()):
        message = f"unknown kernel {unknown[0]} for {arch()}; there are {', '.join(every)}"
        raise NoGpuError(message)
    return [
        (name, number)
        for name in kernels or every
        for number in (every[name][:calls] if calls else every[name])
    ]


class _Timed:
    """A target storing the duration of its calls, too."""

    def __init__(self, target: Given, where: torch.device, seconds: list[float]) -> None:
        self._target, self._where, self._seconds = target, where, seconds

    def attend(self, *arguments: Given, **options: Given) -> Given:
        this_machine.synchronize(self._where)
        begin = time.perf_counter()
        found = self._target.attend(*arguments, **options)
        this_machine.synchronize(self._where)
        self._seconds.append(time.perf_counter() - begin)
        return found

    def __getattr__(self, name: str) -> Given:
        return getattr(self._target, name)


def _check(call: Given, name: str, target: Given, kernel: Kernel, where: torch.device) -> None:
    kernel.calls += 1
    try:
        call.check(_Timed(target, where, kernel.seconds), target.shown)
    except (AssertionError, RuntimeError) as error:
        kernel.failures.append(f"call {name}: {str(error).splitlines()[0]}")


def _row(name: str, kernel: Kernel, shown: Given) -> dict[str, Any]:
    worst = shown.worst.get(name)
    return {
        "calls": kernel.calls,
        "failed": len(kernel.failures),
        "failures": kernel.failures[:MOST_WORDS],
        "worst_error": worst.error if worst else 0.0,
        "allowed": worst.allowed if worst else 0.0,
        "worst_lse_error": shown.worst_lse.get(name, 0.0),
        "median_ms": statistics.median(kernel.seconds) * 1e3 if kernel.seconds else 0.0,
    }
