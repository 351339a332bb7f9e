"""Kernels with other rows, from the distribution ``flash-attn-rocm-tuning-<arch>``, and their use.

The distribution is data: a list and machine code. It belongs to one wheel. Everything is checked before use.
"""

import hashlib
import importlib.util
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from flash_attn_rocm.library import host
from flash_attn_rocm.machine import tuning
from flash_attn_rocm.machine.requirements import LIBRARY, package_version
from flash_attn_rocm.values.given import Given

FORMAT, LIST = 1, "candidates.json"
MOST_BYTES, MOST_CODE, MOST_KERNELS, MOST_ROWS, MOST_WIDTH = 1 << 20, 4 << 20, 128, 16, 1024
ROW, DIGEST, KERNEL = (
    re.compile(r"[0-9a-f]{8}"),
    re.compile(r"[0-9a-f]{64}"),
    re.compile(r"fa_[a-z0-9_]{1,60}"),
)
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
        data = _bounded(folder / LIST, MOST_BYTES)
        listed = json.loads(data, object_pairs_hook=_once, parse_constant=_no_constant)
        wheel = _wheel(listed, arch)
        if hashlib.sha256(LIBRARY.read_bytes()).hexdigest() not in wheel["libraries"]:
            message = (
                f"{name} belongs to another wheel, flash-attn-rocm {wheel['version']}: "
                f"{package_version()} is installed, or another build\n  next: {install}"
            )
            raise CandidatesError(message)
        kernels = {kernel: _kernel(arch, kernel, value) for kernel, value in listed["kernels"].items()}
    except (OSError, ValueError, RecursionError) as error:
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
        data = _bounded(path, MOST_CODE)
    except (OSError, ValueError) as error:
        message = f"the candidates' code cannot be read: {path}: {error}"
        raise CandidatesError(message) from error
    if (len(data), hashlib.sha256(data).hexdigest()) != (size, sha256):
        message = f"the candidates' code is damaged: {path}: expected the sha256 {sha256}"
        raise CandidatesError(message)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _bounded(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        message = f"expected at most {most} bytes"
        raise ValueError(message)
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        message = "a key is there twice"
        raise ValueError(message)
    return found


def _no_constant(name: str) -> None:
    message = f"expected numbers, got {name}"
    raise ValueError(message)


def _expect(what: str, value: Given, *, fits: bool, expected: str) -> Given:
    if not fits:
        message = f"{what}: expected {expected}, got {str(value)[:80]}"
        raise ValueError(message)
    return value


def _fields(what: str, value: Given, *names: str) -> Mapping[str, Any]:
    fits = isinstance(value, dict) and sorted(value) == sorted(names)
    return _expect(what, value, fits=fits, expected=f"exactly {', '.join(names)}")


def _text(what: str, value: Given, most: int, pattern: re.Pattern[str] | None = None) -> str:
    fits = (
        isinstance(value, str) and 0 < len(value) <= most and (not pattern or bool(pattern.fullmatch(value)))
    )
    expected = pattern.pattern if pattern else f"1 to {most} characters"
    return str(_expect(what, value, fits=fits, expected=expected))


def _number(what: str, value: Given, least: int, most: int) -> int:
    fits = type(value) is int and least <= value <= most
    return int(_expect(what, value, fits=fits, expected=f"a number from {least} to {most}"))


def _wheel(listed: Given, arch: str) -> Mapping[str, Any]:
    fields = _fields("the list", listed, "format", "arch", "wheel", "kernels")
    _expect("format", fields["format"], fits=fields["format"] == FORMAT, expected=str(FORMAT))
    _expect("arch", fields["arch"], fits=fields["arch"] == arch, expected=arch)
    kernels = fields["kernels"]
    fits = isinstance(kernels, dict) and 0 < len(kernels) <= MOST_KERNELS
    _expect("kernels", kernels, fits=fits, expected=f"1 to {MOST_KERNELS}")
    wheel = _fields("wheel", fields["wheel"], "version", "libraries")
    _text("version", wheel["version"], 64)
    libraries = wheel["libraries"]
    _expect("libraries", libraries, fits=isinstance(libraries, list), expected="a list")
    for each in libraries[:MOST_ROWS]:
        _text("libraries", each, 64, DIGEST)
    return wheel


def _kernel(arch: str, name: str, value: Given) -> Kernel:
    _text("a kernel", name, 64, KERNEL)
    fields = _fields(name, value, "shipped", "code", "candidates")
    code = _fields(f"{name}: code", fields["code"], "file", "bytes", "sha256")
    _expect(f"{name}: file", code["file"], fits=code["file"] == f"{name}.hipfb", expected=f"{name}.hipfb")
    rows = fields["candidates"]
    fits = isinstance(rows, dict) and 0 < len(rows) <= MOST_ROWS
    _expect(f"{name}: candidates", rows, fits=fits, expected=f"1 to {MOST_ROWS}")
    found = {row: _candidate(name, row, rows[row], place) for place, row in enumerate(sorted(rows))}
    shipped, own = fields["shipped"], host.row_ids().get((arch, name))
    fits = own is not None and shipped == own
    _expect(f"{name}: shipped", shipped, fits=fits, expected=own or "a kernel with rows")
    _expect(f"{name}: candidates", shipped, fits=shipped not in found, expected="other rows than the wheel's")
    size = _number(f"{name}: bytes", code["bytes"], 1, MOST_CODE)
    return Kernel(shipped, code["file"], size, _text(f"{name}: sha256", code["sha256"], 64, DIGEST), found)


def _candidate(kernel: str, row: str, value: Given, place: int) -> Candidate:
    what = f"{kernel}: {_text(f'{kernel}: a row', row, 8, ROW)}"
    names = ("changes", "settings", "rows", "threads", "lds_bytes", "vgprs", "sha256")
    fields = _fields(what, value, *names)
    _text(f"{what}: sha256", fields["sha256"], 64, DIGEST)
    _number(f"{what}: lds_bytes", fields["lds_bytes"], 0, 160 << 10)
    _number(f"{what}: vgprs", fields["vgprs"], 0, 512)
    changes = _text(f"{what}: changes", fields["changes"], 200)
    rows = _number(f"{what}: rows", fields["rows"], 1, MOST_WIDTH)
    return Candidate(
        kernel, row, changes, rows, _number(f"{what}: threads", fields["threads"], 1, MOST_WIDTH), place
    )
