"""``candidates.json`` of a distribution of candidates: other rows for the kernels of one wheel and arch."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from functools import cache

from pydantic import TypeAdapter

from wheel_builder.base.words import line_problem
from wheel_builder.matrix.machine_run import DIGEST, bounded, refuse, visible_name
from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.row_ids import DEFAULTS, LENGTH, settings_id
from wheel_builder.tables.tiles import SWITCHES

FORMAT, FILE = 1, "candidates.json"
PREFIX = "flash-attn-rocm-tuning-"  # and the arch: the name of a distribution
MOST_BYTES, MOST_KERNELS, MOST_CANDIDATES, MOST_WORDS, MOST_LIBRARIES = 1 << 20, 128, 16, 200, 8
MOST_CODE, MOST_VERSION = 4 << 20, 64
MOST_ROWS, MOST_LDS, MOST_VGPRS = 1024, 163_840, 512
ARCH, ROW = re.compile(r"gfx[0-9a-f]{3,5}"), re.compile(rf"[0-9a-f]{{{LENGTH}}}")
KERNEL = re.compile(r"fa_(?P<op>\w{1,40})_(?P<dtype>fp16|bf16)_d(?P<head_dim>[1-9]\d{1,3})", re.ASCII)
Settings = Mapping[str, int | str | list[str]]


@dataclass(frozen=True)
class ForWheel:
    """The wheel whose kernels these are, with the digests of its library for each system."""

    version: str
    libraries: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """The file with the code objects of a kernel's candidates."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Candidate:
    """Other rows of a kernel. ``settings``: of its plain and its featured loop.

    ``rows``, ``threads``: of a workgroup. ``sha256``: of the code object.
    """

    changes: str
    settings: tuple[Settings, ...]
    rows: int
    threads: int
    lds_bytes: int
    vgprs: int
    sha256: str


@dataclass(frozen=True)
class KernelCandidates:
    """A kernel: the id of the wheel's rows, and the candidates by theirs."""

    shipped: str
    code: Code
    candidates: Mapping[str, Candidate]


@dataclass(frozen=True)
class Candidates:
    """All of one arch."""

    format: int
    arch: str
    wheel: ForWheel
    kernels: Mapping[str, KernelCandidates]


_FORM = TypeAdapter(Candidates)


@cache
def distributions() -> Mapping[str, str]:
    """The names of distributions, with their archs: each arch with machine code of its own can have one."""
    return {f"{PREFIX}{arch}": arch for arch in known_archs()}


def parse_candidates(data: bytes) -> Candidates:
    """Raises ``ValueError`` with all problems."""
    found = bounded(_FORM, data, MOST_BYTES, FILE)
    refuse(problems_of(found))
    return found


def to_json(found: Candidates) -> bytes:
    """The file. Raises ``ValueError`` if ``parse_candidates`` would."""
    data = _FORM.dump_json(found, indent=1) + b"\n"
    parse_candidates(data)
    return data


def problems_of(found: Candidates) -> Iterator[str]:
    """What no distribution of ours has."""
    if found.format != FORMAT:
        yield f"format: expected {FORMAT}, found {found.format}"
    if not ARCH.fullmatch(found.arch):
        yield f"arch: expected one such as gfx1100, found {visible_name(found.arch)}"
    if line_problem(found.wheel.version) or len(found.wheel.version) > MOST_VERSION:
        yield f"wheel.version: expected one line of at most {MOST_VERSION} characters"
    libraries = found.wheel.libraries
    if not 1 <= len(libraries) <= MOST_LIBRARIES or not all(map(DIGEST.fullmatch, libraries)):
        yield f"wheel.libraries: expected 1 to {MOST_LIBRARIES} digests of 64 hexadecimal digits"
    if not 1 <= len(found.kernels) <= MOST_KERNELS:
        yield f"kernels: expected 1 to {MOST_KERNELS}, found {len(found.kernels)}"
        return
    for name, kernel in found.kernels.items():
        own = _kernel_problems(found.arch, name, kernel)
        yield from (f"kernels.{visible_name(name)}: {problem}" for problem in own)


def _kernel_problems(arch: str, name: str, kernel: KernelCandidates) -> Iterator[str]:
    if not KERNEL.fullmatch(name):
        yield "it is no name of a kernel"
    if not ROW.fullmatch(kernel.shipped) or kernel.shipped in kernel.candidates:
        yield "shipped: expected the id of rows that are no candidate"
    if kernel.code.file != f"{name}.hipfb" or not DIGEST.fullmatch(kernel.code.sha256):
        yield f"code: expected {visible_name(name)}.hipfb and its digest"
    if not 1 <= kernel.code.bytes <= MOST_CODE:
        yield f"code.bytes: expected 1 to {MOST_CODE}, found {kernel.code.bytes}"
    if not 1 <= len(kernel.candidates) <= MOST_CANDIDATES:
        yield f"candidates: expected 1 to {MOST_CANDIDATES}, found {len(kernel.candidates)}"
        return
    for row, candidate in kernel.candidates.items():
        own = (*settings_problems(arch, name, row, candidate.settings), *_candidate_problems(candidate))
        yield from (f"candidates.{visible_name(row)}: {problem}" for problem in own)


def settings_problems(arch: str, kernel: str, row: str, every: Iterable[Settings]) -> Iterator[str]:
    """Settings that no row has, or that are not those of the id ``row``."""
    if row != settings_id(arch, kernel, every):
        yield "it is not the id of its settings"
    for name, value in (each for settings in every for each in settings.items()):
        if name == "switches" and isinstance(value, list) and set(value) <= {*SWITCHES}:
            continue
        if name not in DEFAULTS or type(value) is not _kind(name):
            yield f"settings: no row has {visible_name(name)} = {str(value)[:40]!r}"


def _kind(setting: str) -> type:
    return int if DEFAULTS[setting] is MISSING else type(DEFAULTS[setting])


def _candidate_problems(candidate: Candidate) -> Iterator[str]:
    if line_problem(candidate.changes) or len(candidate.changes) > MOST_WORDS:
        yield f"changes: expected one line of at most {MOST_WORDS} characters"
    if not 1 <= len(candidate.settings) <= 2:
        yield "settings: expected those of one or two loops"
    if not DIGEST.fullmatch(candidate.sha256):
        yield "sha256: expected 64 hexadecimal digits"
    ranges = {
        "rows": (1, MOST_ROWS),
        "threads": (1, MOST_ROWS),
        "lds_bytes": (0, MOST_LDS),
        "vgprs": (0, MOST_VGPRS),
    }
    for field, (least, most) in ranges.items():
        if not least <= (value := getattr(candidate, field)) <= most:
            yield f"{field}: expected {least} to {most}, found {value}"
