"""The rows of a kernel, and changes of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from wheel_builder.base.errors import TuneError
from wheel_builder.tables.archs import Arch
from wheel_builder.tables.kinds import known_kinds
from wheel_builder.tables.row_ids import name_of, row_id
from wheel_builder.tables.tiles import CHOICES, FOR, LOOPS, NEEDED, SETS, SWITCHES, Tile, Tiles, find_row

# Fields that the featured loop shares with the plain one (kernels/device/call/config.hpp).
SHARED = ("waves", "pairs", "column_blocks")
EXAMPLE = "waves = 2, without identity_shortcuts"
MASKED = ("MaskedParams", "MaskedBwdParams")


class Change(NamedTuple):
    """Another value of a field of the plain loop's row. For a switch: whether it is on."""

    field: str
    value: int | str | bool

    @property
    def words(self) -> str:
        if self.field in SWITCHES:
            return f"{'with' if self.value else 'without'} {self.field}"
        return f"{self.field} = {self.value}"


Changes = tuple[Change, ...]  # in the order of their fields' names
NONE: Changes = ()


@dataclass(frozen=True)
class Kernel:
    """One kernel of one arch."""

    arch: str
    op: str
    dtype: str
    head_dim: int

    @property
    def name(self) -> str:
        return name_of(self.op, self.dtype, self.head_dim)


@dataclass(frozen=True)
class Rows:
    """The rows of both loops of a kernel, as far as the table has them.

    ``together``: the kernel has one loop, and both rows are the same.
    """

    plain: Tile
    featured: Tile | None
    together: bool = False

    @property
    def used(self) -> tuple[Tile, ...]:
        return (self.plain, self.featured) if self.featured else (self.plain,)

    def id_of(self, kernel: Kernel) -> str:
        return row_id(kernel.arch, kernel.name, self.used)


def rows_of(tiles: Tiles, arch: Arch, kernel: Kernel) -> Rows:
    """Today's rows. Raises ``TuneError`` without any."""
    found = [find_row(tiles, arch, kernel.op, kernel.dtype, kernel.head_dim, loop) for loop in LOOPS]
    plain, featured = found
    if plain is None:
        title = f"{kernel.name} of {kernel.arch} has no row"
        raise TuneError(title, [f"expected one in kernels/tables/tiles.toml for {arch.isa.name}"])
    together = featured == plain and has_one_loop(kernel.op, plain)
    return Rows(alone(plain, "plain"), featured and alone(featured, "featured"), together)


def has_one_loop(op: str, row: Tile) -> bool:
    """Whether no loop of a kernel is for features only."""
    kind = known_kinds()[op]
    if "features" in SETS[op]:
        return "features" not in row.switches
    return kind.plain or kind.params in MASKED


def alone(row: Tile, loop: str) -> Tile:
    """The row for one loop, any dtype, any compiler and any number of registers."""
    return replace(row, loop=loop, dtype="", before_clang=0, vgprs=0)


def changed(rows: Rows, changes: Iterable[Change]) -> Rows:
    """The rows with all changes."""
    plain, featured = rows.plain, rows.featured
    for change in changes:
        plain = _with(plain, change)
        if featured and (rows.together or change.field in SHARED):
            featured = _with(featured, change)
    return replace(rows, plain=plain, featured=featured)


def _with(row: Tile, change: Change) -> Tile:
    if change.field not in SWITCHES:
        field: Any = {change.field: change.value}
        return replace(row, **field)
    others = tuple(name for name in row.switches if name != change.field)
    return replace(row, switches=(*others, change.field) if change.value else others)


def joined(changes: Iterable[Change]) -> Changes:
    return tuple(sorted(changes, key=lambda change: change.field))


def words_of(changes: Changes) -> str:
    return ", ".join(change.words for change in changes) or "today's row"


def changes_named(op: str, words: str) -> Changes:
    """The changes of ``words_of``. Raises ``TuneError`` for other words."""
    if words == words_of(NONE):
        return NONE
    try:
        return _changes_named(op, words)
    except ValueError as error:
        title = f"no change of {op}: {error}"
        raise TuneError(title, [f"expected words such as {EXAMPLE!r}"]) from error


def _changes_named(op: str, words: str) -> Changes:
    found = joined(_change_named(op, each.strip()) for each in words.split(","))
    if len({each.field for each in found}) < len(found):
        raise ValueError(words)
    return found


def _change_named(op: str, words: str) -> Change:
    on, _, switch = words.partition(" ")
    if on in ("with", "without") and switch in SETS[op]:
        return Change(switch, on == "with")
    field, equals, value = (each.strip() for each in words.partition("="))
    if not equals or field not in SETS[op] or field in SWITCHES:
        raise ValueError(words)
    if field not in CHOICES:
        return Change(field, int(value))
    if value not in CHOICES[field]:  # the compiler reads it
        raise ValueError(words)
    return Change(field, value)


def toml_row(op: str, row: Tile) -> str:
    """The row as tiles.toml writes it."""
    needed = [name for name in SETS[op] if name not in SWITCHES]
    given: Mapping[str, object] = {
        name: getattr(row, name)
        for name in (*FOR, *needed)
        if name in NEEDED or getattr(row, name) != Tile.__dataclass_fields__[name].default
    }
    fields = [f"{name} = {_toml(value)}" for name, value in given.items()]
    if row.switches:
        fields.append(f"switches = [{', '.join(map(_toml, row.switches))}]")
    return f"{{ {', '.join(fields)} }}"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
