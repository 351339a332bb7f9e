"""Candidates of one arch as a wheel of data, timed on users' GPUs: ``flash-attn-rocm-tuning-<arch>``.

Equal candidates give equal bytes.
"""

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from wheel_builder.extras.tune.measuring import Figures
from wheel_builder.extras.tune.proposal import Search, verdicts
from wheel_builder.extras.tune.rows import NONE, Changes, Kernel, Rows, words_of
from wheel_builder.files.device.packing import SUFFIX, packed
from wheel_builder.matrix.tuned import candidates as form
from wheel_builder.tables.row_ids import settings
from wheel_builder.tables.tiles import Workgroup

MOST = 8  # candidates of a kernel
DOMINATED, WRONG = "dominated by", "wrong results"
TAG = "py3-none-any"
DOC = '"""Candidates for kernels of flash-attn-rocm: data for `python -m flash_attn_rocm tune`."""\n'
SUMMARY = "Candidates for kernels of flash-attn-rocm on {arch}, timed by python -m flash_attn_rocm tune"


@dataclass(frozen=True)
class Chosen:
    """A candidate with right results: its rows, workgroup, resources and code object."""

    changes: Changes
    rows: Rows
    tile: Workgroup
    figures: Figures
    code: bytes


@dataclass(frozen=True)
class OfKernel:
    """A kernel: the id of the wheel's rows, and candidates by theirs."""

    shipped: str
    chosen: Mapping[str, Chosen]


@dataclass(frozen=True)
class For:
    """The wheel that candidates belong to: its version, and the digests of its libraries."""

    version: str
    libraries: tuple[str, ...]


def worth_timing(search: Search) -> list[Changes]:
    """Candidates that no other one dominates, the best first: a model's loser may win on a GPU."""
    said = verdicts(search)
    gains = {
        changes: gain.mean
        for changes, outcome in search.outcomes.items()
        if changes != NONE and not outcome.twin and (gain := search.gain(changes))
    }
    good = [each for each in gains if not said[each].startswith((DOMINATED, WRONG))]
    return sorted(good, key=lambda changes: (-gains[changes], words_of(changes)))


def wheel_of(arch: str, wheel: For, kernels: Mapping[Kernel, OfKernel], epoch: int) -> tuple[str, bytes]:
    """The name and content of the file. Raises ``ValueError`` for candidates that ``tune`` would refuse."""
    package = f"flash_attn_rocm_tuning_{arch}"
    codes = {
        kernel.name: packed(arch, {row: each.code for row, each in of.chosen.items()})
        for kernel, of in kernels.items()
    }
    listed = form.Candidates(
        form.FORMAT,
        arch,
        form.ForWheel(wheel.version, wheel.libraries),
        {kernel.name: _listed(kernel, of, codes[kernel.name]) for kernel, of in kernels.items()},
    )
    files = {
        f"{package}/__init__.py": DOC.encode(),
        f"{package}/{form.FILE}": form.to_json(listed),
        **{f"{package}/{name}{SUFFIX}": data for name, data in codes.items()},
    }
    dist_info = f"{package}-{wheel.version}.dist-info"
    files |= {f"{dist_info}/METADATA": _metadata(arch, wheel.version), f"{dist_info}/WHEEL": _wheel()}
    return f"{package}-{wheel.version}-{TAG}.whl", _zipped(files, dist_info, epoch)


def _listed(kernel: Kernel, of: OfKernel, code: bytes) -> form.KernelCandidates:
    return form.KernelCandidates(
        of.shipped,
        form.Code(f"{kernel.name}{SUFFIX}", len(code), hashlib.sha256(code).hexdigest()),
        {row: _candidate(each) for row, each in of.chosen.items()},
    )


def _candidate(each: Chosen) -> form.Candidate:
    figures = each.figures
    return form.Candidate(
        changes=words_of(each.changes),
        settings=tuple(map(_plain, each.rows.used)),
        rows=each.tile.rows,
        threads=each.tile.threads,
        lds_bytes=figures.lds_bytes,
        vgprs=figures.vgpr + figures.agpr,
        sha256=hashlib.sha256(each.code).hexdigest(),
    )


def _plain(row: object) -> form.Settings:
    found: form.Settings = settings(row)  # type: ignore[arg-type, assignment]
    return found


def _metadata(arch: str, version: str) -> bytes:
    fields = {
        "Metadata-Version": "2.4", "Name": f"flash-attn-rocm-tuning-{arch}", "Version": version,
        "Summary": SUMMARY.format(arch=arch), "License-Expression": "MIT", "Requires-Python": ">=3.10",
        "Requires-Dist": f"flash-attn-rocm=={version}",
    }  # fmt: skip
    return "".join(f"{name}: {value}\n" for name, value in fields.items()).encode()


def _wheel() -> bytes:
    return f"Wheel-Version: 1.0\nGenerator: wheel-builder\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode()


def _zipped(files: Mapping[str, bytes], dist_info: str, epoch: int) -> bytes:
    """The code is compressed already, and the rest is small."""
    record = f"{dist_info}/RECORD"
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    every = {**files, record: "\n".join([*rows, f"{record},,"]).encode() + b"\n"}
    file = io.BytesIO()
    when = datetime.fromtimestamp(epoch, UTC).timetuple()[:6]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in every.items():
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return file.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
