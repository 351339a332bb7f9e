"""Small candidates, and tuning reports about them."""

import copy
import hashlib
import json
from datetime import UTC, datetime

from tests.tools.made.wheels import GOOD_LIBRARY, KERNELS, VERSION, good_files, write_statement, write_wheel
from wheel_builder.matrix.tuned.calls import calls_of
from wheel_builder.matrix.tuned.tree import SignedTuning, TriedRows
from wheel_builder.provenance.provenance import LOCAL, RunDetails
from wheel_builder.tables.row_ids import settings_id

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NAME = "A Maintainer <maintainer@localhost>"
ARCH, KERNEL, OTHER = "gfx1100", KERNELS[1], KERNELS[0]
BUILT = RunDetails(LOCAL, "2026-11-19T10:00:00Z")
LIBRARY = hashlib.sha256(GOOD_LIBRARY.data).hexdigest()
PLAIN = {"waves_per_simd": 2, "waves": 4, "keys": 64, "schedule": "two_stages"}
# The settings of the wheel's rows and of two candidates.
SETTINGS = [PLAIN, {**PLAIN, "waves": 2}, {**PLAIN, "switches": ["buffer_stores", "padded_tiles"]}]
CHANGES = ["today's row", "waves = 2", "with padded_tiles"]


def ids(kernel, arch=ARCH):
    """Of the shipped rows and of the candidates."""
    return [settings_id(arch, kernel, [settings]) for settings in SETTINGS]


def candidate(number):
    return {
        "changes": CHANGES[number], "settings": [SETTINGS[number]], "rows": 64, "threads": 128,
        "lds_bytes": 8192, "vgprs": 120, "sha256": "5" * 64,
    }  # fmt: skip


def candidates(kernels=KERNELS, arch=ARCH, libraries=(LIBRARY,)):
    """The value of candidates.json."""
    return {
        "format": 1, "arch": arch, "wheel": {"version": VERSION, "libraries": [*libraries]},
        "kernels": {
            kernel: {
                "shipped": ids(kernel, arch)[0],
                "code": {"file": f"{kernel}.hipfb", "bytes": 1234, "sha256": "4" * 64},
                "candidates": {row: candidate(n) for n, row in enumerate(ids(kernel, arch)) if n},
            }
            for kernel in kernels
        },
    }  # fmt: skip


def as_bytes(value):
    return json.dumps(value).encode()


def candidates_wheel(folder, value=None):
    value = candidates() if value is None else value
    package = f"flash_attn_rocm_tuning_{ARCH}"
    name = f"{package}-{VERSION}-py3-none-any.whl"
    return write_wheel(folder, {f"{package}/candidates.json": as_bytes(value)}, name=name)


def tuned_wheel(folder, rows=None):
    """A wheel with the shipped rows of these kernels, and a statement of its build."""
    rows = {ARCH: {kernel: [(0, ids(kernel)[0])] for kernel in KERNELS}} if rows is None else rows
    wheel = write_wheel(folder, good_files() | {"flash_attn_rocm/values/rows.json": as_bytes(rows)})
    write_statement(wheel, run=BUILT)
    return wheel


def times(ms):
    return {"ms": ms, "least": ms * 0.98, "most": ms * 1.05, "runs": 12}


def call(kernel, milliseconds, *, length=2048, causal=False, **others):
    """A bin. ``milliseconds``: of the rows of ``ids``, or of the first ones."""
    rows = ids(kernel)[: len(milliseconds)]
    return {
        "kind": "forward", "length": length, "causal": causal, "width": 1, "mask": "",
        "dtype": kernel.split("_")[2], "head_dim": 64, "batch": 8, "heads": 16,
        "times": {row: times(ms) for row, ms in zip(rows, milliseconds, strict=True)},
        "sdpa_ms": 9.5, "winner": min(zip(milliseconds, rows, strict=True))[1], **others,
    }  # fmt: skip


def every_call(kernel, of):
    """Bins of all calls of a kernel. ``of``: the milliseconds of its rows, by the number of the call."""
    return [call(kernel, of(number), **each._asdict()) for number, each in enumerate(calls_of(kernel))]


def tuned(kernel, *bins):
    """The results of a kernel with three timed rows."""
    shipped, *others = ids(kernel)
    return {
        "shipped": shipped, "winner": shipped,
        "candidates": {row: {"state": "timed", "words": ""} for row in others}, "bins": [*bins],
    }  # fmt: skip


CLOCKS = {"gpu_mhz": 2500, "memory_mhz": 1250.0, "watts": None, "celsius": 61.5}
REPORT = {
    "format": 1, "report": "tuning", "how": "run on hardware", "time": "2026-11-20T10:00:00+00:00",
    "machine": "0123456789abcdef", "device": "AMD Radeon RX 7900 XTX", "arch": ARCH, "compute_units": 96,
    "driver": "amdgpu 6.12.12", "os": "Debian GNU/Linux 12", "python": "3.11.2", "torch": "2.13.0+rocm7.2",
    "torch_build": "ROCm 7.2.53210", "package": VERSION, "library_sha256": LIBRARY,
    "library_as_installed": True, "candidates": hashlib.sha256(as_bytes(candidates())).hexdigest(),
    "complete": True, "seconds": 40.5, "clocks": {"before": CLOCKS, "after": CLOCKS},
    "kernels": {
        kernel: tuned(kernel, call(kernel, (5.0, 4.8, 5.5)), call(kernel, (2.5, 2.4, 2.6), causal=True))
        for kernel in KERNELS
    },
}  # fmt: skip


def report(**values):
    return {**copy.deepcopy(REPORT), **values}


def another(machine="fedcba9876543210", scale=1.01, **values):
    """The report of another machine, all of whose times are different."""
    found = report(machine=machine, time="2026-11-21T10:00:00+00:00", **values)
    for kernel in found["kernels"].values():
        for each in kernel["bins"]:
            each["times"] = {row: times(one["ms"] * scale) for row, one in each["times"].items()}
    return found


def signed(parsed):
    """A report in the tree."""
    rows = {
        kernel: {
            row: TriedRows(CHANGES[n], (SETTINGS[n],))
            for n, row in enumerate(ids(kernel))
            if row in parsed.kernels[kernel].candidates
        }
        for kernel in parsed.kernels
    }
    return SignedTuning("a.whl", "1" * 64, "b.whl", NAME, rows, parsed)
