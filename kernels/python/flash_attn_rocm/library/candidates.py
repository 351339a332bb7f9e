"""Kernels with other rows, from the distribution ``flash-attn-rocm-tuning-<arch>``, and their use.

The distribution is data: a list and machine code. It belongs to one wheel. Everything is checked before use.
"""

import hashlib
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from flash_attn_rocm.library import checked, host
from flash_attn_rocm.library.checked import DIGEST, KERNEL, MOST_KERNELS, MOST_ROWS, ROW
from flash_attn_rocm.machine import tuning
from flash_attn_rocm.machine.requirements import LIBRARY, package_version
from flash_attn_rocm.values.given import Given

FORMAT, LIST = 1, "candidates.json"
MOST_BYTES, MOST_CODE, MOST_WIDTH = 1 << 20, 4 << 20, 1024
REPLACE = torch.ops.flash_attn_rocm.replace.default


class CandidatesError(RuntimeError):
    """There are no candidates to use. The message says why, and what to do."""


class Candidate(NamedTuple):
    """Another row of a kernel. Its code object is number ``place`` of the kernel's file.

    ``rows`` of a workgroup, which has ``threads``. ``changes`` says how the row differs from the wheel's.
    """

    kernel: str
    row: str
    changes: str
    rows: int
    threads: int
    place: int


class Kernel(NamedTuple):
    """A kernel with candidates. ``shipped`` is the wheel's row."""

    shipped: str
    file: str
    size: int
    sha256: str
    candidates: Mapping[str, Candidate]


class Candidates(NamedTuple):
    """All candidates of an arch. ``digest`` is that of the list."""

    folder: Path
    digest: str
    kernels: Mapping[str, Kernel]


@cache
def find(arch: str) -> Candidates:
    """The installed candidates for the machine code of ``arch``. Raises CandidatesError."""
    name = tuning.distribution(arch)
    install = tuning.install(name)
    spec = importlib.util.find_spec(name.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        message = (
            f"{name} is not installed: it has the candidates for {arch}\n  next: {install}\n"
            f"  An index without it: its maintainer runs scripts/wheel-builder tuning-wheel --arch {arch}"
        )
        raise CandidatesError(message)
    folder = Path(next(iter(spec.submodule_search_locations)))
    try:
        data = checked.bounded(folder / LIST, MOST_BYTES)
        listed = checked.parsed(data)
        wheel = _wheel(listed, arch)
        if hashlib.sha256(LIBRARY.read_bytes()).hexdigest() not in wheel["libraries"]:
            message = (
                f"{name} belongs to another wheel, flash-attn-rocm {wheel['version']}: "
                f"{package_version()} is installed, or another build\n  next: {install}"
            )
            raise CandidatesError(message)
        kernels = {kernel: _kernel(arch, kernel, value) for kernel, value in listed["kernels"].items()}
    except (OSError, ValueError) as error:
        message = f"{name} is damaged: {folder / LIST}: {error}\n  next: {install} --force-reinstall"
        raise CandidatesError(message) from error
    return Candidates(folder, hashlib.sha256(data).hexdigest(), kernels)


def use(found: Candidates, candidate: Candidate, device: int, regime: str = "") -> None:
    """Launches of the kernel on ``device`` run the candidate from now on. ``regime``: only such calls.

    Raises CandidatesError for a damaged file, and RuntimeError if the code does not load. Then nothing has
    changed.
    """
    kernel = found.kernels[candidate.kernel]
    code = _code(found.folder / kernel.file, kernel.size, kernel.sha256)
    sizes = (candidate.place, candidate.rows, candidate.threads)
    REPLACE(device, candidate.kernel, candidate.row, code, *sizes, regime)


def give_back(kernel: str, device: int) -> None:
    """Launches of the kernel on ``device`` run the wheel's own code again."""
    REPLACE(device, kernel, "", torch.empty(0, dtype=torch.uint8, device="cpu"), 0, 0, 0, "")


def index_of(where: torch.device) -> int:
    """The library's number of a device. -1 is the current one."""
    return where.index if where.type == "cuda" and where.index is not None else -1


@cache
def _code(path: Path, size: int, sha256: str) -> torch.Tensor:
    try:
        data = checked.bounded(path, MOST_CODE)
    except (OSError, ValueError) as error:
        message = f"the candidates' code cannot be read: {path}: {error}"
        raise CandidatesError(message) from error
    if (len(data), hashlib.sha256(data).hexdigest()) != (size, sha256):
        message = f"the candidates' code is damaged: {path}: expected the sha256 {sha256}"
        raise CandidatesError(message)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _wheel(listed: Given, arch: str) -> Mapping[str, Any]:
    fields = checked.fields("the list", listed, "format", "arch", "wheel", "kernels")
    checked.equal("format", fields["format"], FORMAT)
    checked.equal("arch", fields["arch"], arch)
    checked.entries("kernels", fields["kernels"], MOST_KERNELS)
    wheel = checked.fields("wheel", fields["wheel"], "version", "libraries")
    checked.text("version", wheel["version"], 64)
    libraries = wheel["libraries"]
    checked.expect("libraries", libraries, fits=isinstance(libraries, list), expected="a list")
    for each in libraries[:MOST_ROWS]:
        checked.text("libraries", each, 64, DIGEST)
    return wheel


def _kernel(arch: str, name: str, value: Given) -> Kernel:
    checked.text("a kernel", name, 64, KERNEL)
    fields = checked.fields(name, value, "shipped", "code", "candidates")
    code = checked.fields(f"{name}: code", fields["code"], "file", "bytes", "sha256")
    checked.equal(f"{name}: file", code["file"], f"{name}.hipfb")
    rows = checked.entries(f"{name}: candidates", fields["candidates"], MOST_ROWS)
    found = {row: _candidate(name, row, rows[row], place) for place, row in enumerate(sorted(rows))}
    shipped, own = fields["shipped"], host.row_ids().get((arch, name))
    fits = own is not None and shipped == own
    checked.expect(f"{name}: shipped", shipped, fits=fits, expected=own or "a kernel with rows")
    others = shipped not in found
    checked.expect(f"{name}: candidates", shipped, fits=others, expected="other rows than the wheel's")
    size = checked.number(f"{name}: bytes", code["bytes"], 1, MOST_CODE)
    return Kernel(
        shipped, code["file"], size, checked.text(f"{name}: sha256", code["sha256"], 64, DIGEST), found
    )


def _candidate(kernel: str, row: str, value: Given, place: int) -> Candidate:
    what = f"{kernel}: {checked.text(f'{kernel}: a row', row, 8, ROW)}"
    names = ("changes", "settings", "rows", "threads", "lds_bytes", "vgprs", "sha256")
    fields = checked.fields(what, value, *names)
    checked.text(f"{what}: sha256", fields["sha256"], 64, DIGEST)
    checked.number(f"{what}: lds_bytes", fields["lds_bytes"], 0, 160 << 10)
    checked.number(f"{what}: vgprs", fields["vgprs"], 0, 512)
    changes = checked.text(f"{what}: changes", fields["changes"], 200)
    rows = checked.number(f"{what}: rows", fields["rows"], 1, MOST_WIDTH)
    return Candidate(
        kernel,
        row,
        changes,
        rows,
        checked.number(f"{what}: threads", fields["threads"], 1, MOST_WIDTH),
        place,
    )
