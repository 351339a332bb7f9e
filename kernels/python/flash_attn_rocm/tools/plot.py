"""Draws a bench with matplotlib. The other modules work without it.

matplotlib is left out of the distribution's extras: pip would look for it on the index of this wheel, where
it is missing.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

Foreign: TypeAlias = Any  # objects of an optional package

SUFFIXES = (".svg", ".png")
MARKERS = "os^dv"


class PlotError(RuntimeError):
    """Drawing failed."""


def matplotlib(module: str = "matplotlib.figure") -> Foreign:
    """A module of matplotlib. Raises PlotError if the import fails."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = (
            f"plotting needs matplotlib, which failed to import: {error}\n"
            "  next: python -m pip install matplotlib, or use a .csv or .json file"
        )
        raise PlotError(message) from error


def draw(rows: Sequence[Any], title: str, file: Path) -> None:
    """TFLOP/s over the sequence length, one panel per kind of call. ``rows`` come from ``bench``."""
    kinds = list(dict.fromkeys((row.kind, row.causal) for row in rows)) or [("nothing", False)]
    figure = matplotlib().Figure(figsize=(4.2 * len(kinds), 4), layout="constrained")
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        _panel(axes, kind, [row for row in rows if (row.kind, row.causal) == kind and not row.problem])
    figure.suptitle(title, fontsize=9)
    figure.savefig(file)


def _panel(axes: Foreign, kind: tuple[str, bool], rows: Sequence[Any]) -> None:
    names = dict.fromkeys(row.implementation for row in rows)
    for name, marker in zip(names, MARKERS, strict=False):
        points = [(row.seqlen, row.tflops) for row in rows if row.implementation == name]
        axes.plot(*zip(*points, strict=True), marker=marker, label=name)
    axes.set_title(f"{kind[0]}{' causal' if kind[1] else ''}")
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sequence length")
    axes.set_ylabel("TFLOP/s")
    if names:
        axes.legend()
