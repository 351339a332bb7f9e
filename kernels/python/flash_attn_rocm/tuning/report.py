"""The results of ``tune``: a table, a plot of text, the file, and the rows to keep."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flash_attn_rocm.library.tuned import Winner
from flash_attn_rocm.machine import remembered
from flash_attn_rocm.tools import terminal
from flash_attn_rocm.tuning import bins, choice
from flash_attn_rocm.values.bins import Bin

HEADS = ("kernel", "wheel's row", "winner", "gain", "worst bin", "candidates", "out")
BAR = 40
Report = Mapping[str, Any]


def table(report: Report) -> str:
    """A line for each kernel."""
    rows = [HEADS, *(_line(name, found) for name, found in report["kernels"].items())]
    title = f"{report['device']}, {report['arch']}, flash_attn_rocm {report['package']}: {report['how']}"
    return "\n".join([title, _clocks(report), "", *terminal.table(rows)])


def _line(name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    shipped, won = found["shipped"], found["winner"]
    out = sum(each["state"] != "timed" for each in found["candidates"].values())
    numbers = (f"{len(found['candidates'])}", f"{out}")
    if won == shipped:
        return (name, shipped, "the wheel's", "-", "-", *numbers)
    gain = choice.gain(shipped, won, found["bins"])
    worst = min(choice.gain(shipped, won, [each]) for each in found["bins"])
    return (name, shipped, won, f"{gain - 1:+.1%}", f"{worst - 1:+.1%}", *numbers)


def _clocks(report: Report) -> str:
    words = [f"{when}: {_told(values)}" for when, values in report["clocks"].items()]
    return f"clocks, power and temperature {'; '.join(words)}"


def _told(values: Mapping[str, float | None]) -> str:
    units = {"gpu_mhz": "MHz", "memory_mhz": "MHz of memory", "watts": "W", "celsius": "°C"}
    told = [f"{values[name]:.0f} {unit}" for name, unit in units.items() if values[name] is not None]
    return ", ".join(told) or "not told by the driver"


def plot(report: Report) -> str:
    """Bars of TFLOP/s: the wheel's row, the winner, and PyTorch's attention on the same machine."""
    return "\n".join(line for name, found in report["kernels"].items() for line in _bars(name, found))


def _bars(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n{name}, TFLOP/s"
    for each in found["bins"]:
        ms = {"wheel": each["times"][found["shipped"]]["ms"]}
        if found["winner"] != found["shipped"]:
            ms["winner"] = each["times"][found["winner"]]["ms"]
        if each["sdpa_ms"]:
            ms["sdpa"] = each["sdpa_ms"]
        what = Bin(**{field: each[field] for field in Bin._fields})
        least = min(ms.values())
        for number, (which, value) in enumerate(ms.items()):
            rate = bins.flop_of(what) / value * 1e-9
            bar = "#" * max(1, round(BAR * least / value))
            yield f"{str(what) if number == 0 else '':28}  {which:6} {rate:10.3f}  {bar}"


def winners(report: Report) -> dict[str, dict[str, Winner]]:
    """The rows to keep, by kernel and regime. The wheel's stays where none is."""
    return {name: dict(_winners(found)) for name, found in report["kernels"].items()}


def _winners(found: Mapping[str, Any]) -> Iterator[tuple[str, Winner]]:
    shipped = found["shipped"]
    regimes: dict[str, list[Mapping[str, Any]]] = {}
    for each in found["bins"]:
        regimes.setdefault(bins.regime_of(Bin(*(each[field] for field in Bin._fields))), []).append(each)
    for regime, own in regimes.items():
        won = choice.winner(shipped, own)
        if won != shipped:
            yield regime, Winner(won, shipped, choice.gain(shipped, won, own))


def write(report: Report, file: Path) -> str:
    """Writes the report. The problem, or "". A problem leaves a former file as it is."""
    try:
        remembered.write_text(file, to_text(report))
    except OSError as error:
        return f"{file} cannot be written: {error.strerror}"
    return ""


def to_text(report: Report) -> str:
    return json.dumps(report, indent=1)
