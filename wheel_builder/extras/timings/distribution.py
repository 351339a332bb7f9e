"""The candidates of one arch that are worth timing on users' GPUs, as a distribution."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from wheel_builder.extras.tune.rows import Changes, Kernel, Rows, words_of
from wheel_builder.files.device.packing import SUFFIX, packed
from wheel_builder.files.wheels.candidates import file_name, written
from wheel_builder.machine_code.disassembly.resources import Resources
from wheel_builder.matrix.tuned import candidates as form
from wheel_builder.tables.row_ids import settings
from wheel_builder.tables.tiles import Workgroup

MOST = 8  # candidates of a kernel


@dataclass(frozen=True)
class Chosen:
    """A candidate with right results: its rows, workgroup, resources and code object."""

    changes: Changes
    rows: Rows
    tile: Workgroup
    taken: Resources
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


def wheel_of(arch: str, wheel: For, kernels: Mapping[Kernel, OfKernel], epoch: int) -> tuple[str, bytes]:
    """The name and content of the file. Raises ``ValueError`` for candidates that ``tune`` would refuse."""
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
    return file_name(listed), written(listed, codes, epoch)


def _listed(kernel: Kernel, of: OfKernel, code: bytes) -> form.KernelCandidates:
    return form.KernelCandidates(
        of.shipped,
        form.Code(f"{kernel.name}{SUFFIX}", len(code), hashlib.sha256(code).hexdigest()),
        {row: _candidate(each) for row, each in of.chosen.items()},
    )


def _candidate(each: Chosen) -> form.Candidate:
    return form.Candidate(
        changes=words_of(each.changes),
        settings=tuple(map(_plain, each.rows.used)),
        rows=each.tile.rows,
        threads=each.tile.threads,
        lds_bytes=each.taken.lds_bytes,
        vgprs=each.taken.vgpr + each.taken.agpr,
        sha256=hashlib.sha256(each.code).hexdigest(),
    )


def _plain(row: object) -> form.Settings:
    found: form.Settings = settings(row)  # type: ignore[arg-type, assignment]
    return found
