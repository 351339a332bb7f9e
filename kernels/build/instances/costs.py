"""The recorded cost of compiling each kernel, from ``costs.json``: the measure for later builds.

Standard library only: this runs in the builder image.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COSTS = Path(__file__).parents[2] / "tables/costs.json"


def load_peaks(path: Path = COSTS) -> Mapping[str, int]:
    """A compiler's largest memory, in MiB, for a kernel of each operation, on any arch."""
    archs: Mapping[str, Mapping[str, Mapping[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))[
        "archs"
    ]
    peaks: dict[str, int] = {}
    for kernels in archs.values():
        for name, cost in kernels.items():
            op = operation(name)
            peaks[op] = max(peaks.get(op, 0), cost["peak_mib"])
    return peaks


def operation(kernel: str) -> str:
    """``fwd`` of ``fa_fwd_fp16_d64``."""
    return kernel.removeprefix("fa_").partition("_fp16")[0].partition("_bf16")[0]


def peak_mib(peaks: Mapping[str, int], op: str) -> int:
    """The expected memory of a kernel of ``op``. For an unmeasured one, the maximum of all."""
    return peaks[op] if op in peaks else max(peaks.values())
