"""Candidates as data in the repository, ``candidates.toml``: what a maintainer wants timed on users' GPUs."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from wheel_builder.base.errors import TuneError
from wheel_builder.base.plain import read_plain
from wheel_builder.base.words import line_problem
from wheel_builder.extras.timings.distribution import MOST
from wheel_builder.extras.tune.rows import NONE, Changes, Kernel, changed, changes_named, rows_of
from wheel_builder.extras.tune.run import kernel_named
from wheel_builder.index.entries import in_words
from wheel_builder.tables.archs import arch_named, known_archs
from wheel_builder.tables.tiles import known_tiles

FILE = Path("wheel_builder/extras/timings/candidates.toml")
MOST_BYTES, MOST_WORDS = 1 << 18, 200
ADVICE = "its head explains the keys; take a stale candidate out, or write its changes for today's row"


@dataclass(frozen=True)
class Wanted:
    """A candidate. ``today``: the id of the rows that its ``changes`` refer to."""

    arch: str
    kernel: str
    today: str
    changes: str
    why: str


@dataclass(frozen=True)
class Table:
    """The file."""

    candidate: tuple[Wanted, ...] = ()


_TABLE = TypeAdapter(Table)


def read_wanted(checkout: Path) -> tuple[Wanted, ...]:
    """All of the checkout. Raises ``TuneError`` with all problems."""
    title = f"{FILE} cannot be used"
    try:
        text = read_plain(checkout / FILE, MOST_BYTES).decode("utf-8")
        found = _TABLE.validate_python(tomllib.loads(text), strict=False, extra="forbid").candidate
    except (OSError, ValueError) as error:
        words = in_words(error) if isinstance(error, ValidationError) else str(error)
        raise TuneError(title, [words], advice=ADVICE) from error
    if problems := [*_problems(found)]:
        raise TuneError(title, problems, advice=ADVICE)
    return found


def wanted_for(arch: str, wanted: Sequence[Wanted]) -> dict[Kernel, list[Changes]]:
    """The changes of an arch's candidates, by kernel."""
    found: dict[Kernel, list[Changes]] = {}
    for each in (one for one in wanted if one.arch == arch):
        kernel = kernel_named(arch, each.kernel)
        found.setdefault(kernel, []).append(changes_named(kernel.op, each.changes))
    return found


def _problems(found: Sequence[Wanted]) -> Iterator[str]:
    for number, each in enumerate(found, 1):
        where = f"candidate {number}"
        try:
            yield from (f"{where}: {problem}" for problem in _problems_of(each))
        except TuneError as error:
            yield f"{where}: {'; '.join((error.message.splitlines()[0], *error.problems))}"
    names = [(each.arch, each.kernel, each.changes) for each in found]
    yield from (
        f"{' '.join(name)}: it is there twice" for name in sorted({n for n in names if names.count(n) > 1})
    )
    kernels = [name[:2] for name in names]
    for name in sorted(set(kernels)):
        if (count := kernels.count(name)) > MOST:
            yield f"{' '.join(name)}: it has {count} candidates, expected at most {MOST}"


def _problems_of(each: Wanted) -> Iterator[str]:
    """Raises ``TuneError`` for a kernel or a change that is none."""
    if each.arch not in known_archs():
        yield f"arch is {each.arch[:40]!r}, expected one of {', '.join(known_archs())}"
        return
    if line_problem(each.why) or len(each.why) > MOST_WORDS:
        yield f"why: expected one line of at most {MOST_WORDS} characters"
    kernel = kernel_named(each.arch, each.kernel)
    rows = rows_of(known_tiles(), arch_named(each.arch), kernel)
    changes = changes_named(kernel.op, each.changes)
    today, other = rows.id_of(kernel), changed(rows, changes).id_of(kernel)
    if each.today != today:
        yield f"{each.kernel} of {each.arch} has the rows {today} today, and it refers to {each.today[:40]}"
    elif changes == NONE or other == today:
        yield f"{each.changes[:80]!r} changes nothing of {each.kernel}"
