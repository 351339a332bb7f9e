"""Limits on a kernel's cost, relative to ``kernels/tables/costs.json``, written by ``cost --update``.

Bytes of machine code are equal on every machine, so they alone decide whether a kernel has doubled.
CPU-seconds vary with the processor and its load. Each is therefore compared with the build's own median, and
only kernels far above the others are refused. In one build on two shared cores, kernels of equal work
differed by up to 1.4 times.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

COSTS = Path("kernels/tables/costs.json")
# Clearly below 2, so that a doubled kernel is always refused.
MOST_BYTES = 1.8
MOST_MIB = 1.8
MOST_SECONDS = 3.0
# Shorter runs are mostly the compiler's start-up.
LEAST_SECONDS = 0.5
UPDATE = "make it smaller, or review and accept it: scripts/wheel-builder cost --update"


@dataclass(frozen=True)
class KernelCost:
    """One kernel's cost: bytes of machine code, seconds and memory of its compiler."""

    code_bytes: int
    cpu_seconds: float
    peak_mib: int


Costs = Mapping[str, KernelCost]


def measured(resources: Mapping[str, Any]) -> Costs:
    """The costs in a ``resources.json``."""
    kernels, costs = resources["kernels"], resources["costs"]
    return {
        name: KernelCost(kernels[name]["code_bytes"], costs[name]["cpu_seconds"], costs[name]["peak_mib"])
        for name in kernels
    }


def was_cached(resources: Mapping[str, Any]) -> bool:
    """Whether some kernels came from a cache, so that seconds and memory say little about the compiler."""
    return bool(resources.get("cache", {}).get("hits"))


def load_budgets(path: Path) -> Mapping[str, Costs]:
    """The accepted costs, by arch."""
    return parse_budgets(path.read_text(encoding="utf-8"))


def parse_budgets(text: str) -> Mapping[str, Costs]:
    """The costs in a file's text."""
    archs = json.loads(text)["archs"]
    return {
        arch: {name: KernelCost(**cost) for name, cost in kernels.items()} for arch, kernels in archs.items()
    }


def to_text(budgets: Mapping[str, Costs]) -> str:
    """``budgets`` as the file has them: a line for each kernel, in order."""
    archs = []
    for arch in sorted(budgets):
        lines = [
            f"   {json.dumps(name)}: {json.dumps(vars(cost))}" for name, cost in sorted(budgets[arch].items())
        ]
        archs.append(f"  {json.dumps(arch)}: {{\n" + ",\n".join(lines) + "\n  }")
    return '{\n "archs": {\n' + ",\n".join(archs) + "\n }\n}\n"


def over_budget(arch: str, costs: Costs, budget: Costs, *, cached: bool) -> tuple[str, ...]:
    """Excessive costs, in words. Kernels without a budget are skipped (``without_budget``)."""
    known = {name: (cost, budget[name]) for name, cost in costs.items() if name in budget}
    speed = 1.0 if cached else _machine(known)
    return tuple(
        f"{name} for {arch}: {said}"
        for name, (cost, allowed) in sorted(known.items())
        for said in _problems(cost, allowed, None if cached else speed)
    )


def without_budget(costs: Costs, budget: Costs) -> tuple[str, ...]:
    """New kernels."""
    return tuple(sorted(costs.keys() - budget.keys()))


def _machine(known: Mapping[str, tuple[KernelCost, KernelCost]]) -> float:
    """How many times as long as in the budgets this machine takes for most kernels."""
    ratios = [
        cost.cpu_seconds / allowed.cpu_seconds for cost, allowed in known.values() if allowed.cpu_seconds
    ]
    return max(median(ratios), 1e-9) if ratios else 1.0


def _problems(cost: KernelCost, allowed: KernelCost, speed: float | None) -> Iterator[str]:
    if cost.code_bytes > MOST_BYTES * allowed.code_bytes:
        yield _grown("machine code", "bytes", cost.code_bytes, allowed.code_bytes)
    if speed is None:
        return
    if cost.peak_mib > MOST_MIB * allowed.peak_mib:
        yield _grown("the compiler's memory", "MiB", cost.peak_mib, allowed.peak_mib)
    expected = max(allowed.cpu_seconds, LEAST_SECONDS) * speed
    if cost.cpu_seconds > MOST_SECONDS * expected:
        found = f"{cost.cpu_seconds:.1f} CPU-seconds, expected {expected:.1f} at this build's median speed"
        yield f"compiling takes {found} ({cost.cpu_seconds / expected:.1f} times)"


def _grown(what: str, unit: str, found: int, allowed: int) -> str:
    return f"{what} has {found} {unit}, expected about {allowed} ({found / allowed:.1f} times)"
