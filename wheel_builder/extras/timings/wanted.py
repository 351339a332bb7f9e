"""Candidates as data in the repository, a file for each arch: what is timed on users' GPUs.

``scripts/wheel-builder candidates`` writes the files, and maintainers review and extend them.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from wheel_builder.base.errors import TuneError
from wheel_builder.base.plain import read_plain
from wheel_builder.base.words import line_problem
from wheel_builder.extras.timings.distribution import MOST
from wheel_builder.extras.tune.rows import NONE, Changes, Kernel, Rows, changed, changes_named, rows_of
from wheel_builder.extras.tune.rules import refusals
from wheel_builder.extras.tune.run import kernel_named
from wheel_builder.index.entries import in_words
from wheel_builder.matrix.tuned.candidates import ROW
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import known_tiles

FOLDER = Path("wheel_builder/extras/timings/candidates")
MOST_BYTES, MOST_WORDS = 1 << 18, 200
MODELLED = "modelled"  # how the reason of a candidate begins that no maintainer wrote
ADVICE = "its head explains the keys"
HEAD = """\
# Candidates for {arch}'s rows, timed on users' GPUs. `scripts/wheel-builder candidates` writes it.
#   today    the id of the rows that `changes` refer to (kernels/python/flash_attn_rocm/values/rows.json).
#            A kernel with other rows by now is left out until the command ran again
#   changes  of these rows, as `tune --dry-run` prints them
#   why      one line. "modelled 1.020": speed by the model, today's rows have 1. "with fp16", "for gfx1100":
#            of a kernel with the same rows. The command replaces those, and keeps all others
"""


@dataclass(frozen=True)
class Wanted:
    """A candidate."""

    changes: str
    why: str


@dataclass(frozen=True)
class OfKernel:
    """A kernel's candidates. ``today``: the id of the rows that their changes refer to."""

    today: str
    candidates: tuple[Wanted, ...]


Listed = Mapping[str, OfKernel]  # by the kernel's name
_TABLE = TypeAdapter(dict[str, OfKernel])


def file_of(arch: str) -> Path:
    return FOLDER / f"{arch}.toml"


def read_wanted(checkout: Path, arch: str) -> Listed:
    """Those of an arch, none without a file. Raises ``TuneError`` with all problems."""
    file, title = checkout / file_of(arch), f"{file_of(arch)} cannot be used"
    if not file.exists():
        return {}
    try:
        text = read_plain(file, MOST_BYTES).decode("utf-8")
        found = _TABLE.validate_python(tomllib.loads(text), strict=False, extra="forbid")
    except (OSError, ValueError, RecursionError) as error:  # nested tables take the stack of tomllib
        words = in_words(error) if isinstance(error, ValidationError) else str(error)
        raise TuneError(title, [words], advice=ADVICE) from error
    if problems := [*_problems(arch, found)]:
        raise TuneError(title, problems, advice=ADVICE)
    return found


def changes_of(kernel: Kernel, listed: OfKernel) -> list[Changes]:
    return [changes_named(kernel.op, each.changes) for each in listed.candidates]


def is_current(kernel: Kernel, listed: OfKernel) -> bool:
    """Whether they change today's rows."""
    return listed.today == rows_of(known_tiles(), arch_named(kernel.arch), kernel).id_of(kernel)


def to_text(arch: str, found: Listed) -> str:
    """The file."""
    return "\n".join([HEAD.format(arch=arch), *(f"{each}\n" for each in _tables(found))])


def _tables(found: Listed) -> Iterator[str]:
    for name, kernel in sorted(found.items()):
        rows = [
            f"    {{ changes = {json.dumps(each.changes)}, why = {json.dumps(each.why)} }},"
            for each in kernel.candidates
        ]
        candidates = ["candidates = [", *rows, "]"] if rows else ["candidates = []"]
        yield "\n".join([f"[{name}]", f'today = "{kernel.today}"', *candidates])


def _problems(arch: str, found: Listed) -> Iterator[str]:
    for name, listed in found.items():
        try:
            yield from (f"{name}: {problem}" for problem in _problems_of(kernel_named(arch, name), listed))
        except TuneError as error:
            yield f"{name}: {_words_of(error)}"


def _problems_of(kernel: Kernel, listed: OfKernel) -> Iterator[str]:
    """Raises ``TuneError`` for a kernel without rows."""
    rows = rows_of(known_tiles(), arch_named(kernel.arch), kernel)
    if not ROW.fullmatch(listed.today):
        yield f"today is {listed.today[:MOST_WORDS]!r}, expected a row id"
    yield from _repeated(listed.candidates)
    if len(listed.candidates) > MOST:
        yield f"it has {len(listed.candidates)} candidates, expected at most {MOST}"
    for each in listed.candidates:
        yield from _of_candidate(kernel, rows, each, listed)


def _of_candidate(kernel: Kernel, rows: Rows, each: Wanted, listed: OfKernel) -> Iterator[str]:
    """Rules for rows are those of today's: candidates of older ones are left out anyway."""
    if line_problem(each.why) or len(each.why) > MOST_WORDS:
        yield f"why: expected one line of at most {MOST_WORDS} characters"
    try:
        changes = changes_named(kernel.op, each.changes)
    except TuneError as error:
        yield _words_of(error)
        return
    taken, current = changed(rows, changes), is_current(kernel, listed)
    said = repr(each.changes[:MOST_WORDS])
    if changes == NONE or (current and taken.id_of(kernel) == rows.id_of(kernel)):
        yield f"{said} changes nothing"
    elif current:
        yield from (f"{said}: {words}" for words in refusals(kernel, arch_named(kernel.arch), taken))


def _words_of(error: TuneError) -> str:
    return "; ".join((error.message.splitlines()[0], *error.problems))


def _repeated(candidates: Sequence[Wanted]) -> Iterator[str]:
    every = [each.changes for each in candidates]
    twice = sorted({each for each in every if every.count(each) > 1})
    yield from (f"{each[:MOST_WORDS]}: it is there twice" for each in twice)
