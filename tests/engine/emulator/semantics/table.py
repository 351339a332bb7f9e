"""The meaning of a line in the instruction tables.

A mnemonic with one name everywhere is written alone.  ``"cdna:v_add_u32 rdna:v_add_nc_u32"`` has a name for
each family. ``"s_ff1_i32_b32 rdna3:s_ctz_i32_b32"`` has one for all, and another from that ISA on.
``"cdna:v_mad_f32 cdna3:-"`` exists only before CDNA 3.  A family's ISAs are ordered by name.

A reference takes operands by name: a, b, c are the sources, d the old destination, n this lane's bit of the
mask operand, scc the flag before.  It returns the result. If a mask or SCC is written too, it returns
(result, bit). Without a result it returns the bit alone.
"""

import functools
import inspect
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.engine.emulator.semantics.machine import ARCHS, ISAS, Data, Snippet
from tests.engine.emulator.semantics.numbers.operands import Kind
from wheel_builder.tables.archs import arch_named

DOTS = "v_dot"
# Rows of operand values.
PAIRS, PAIRS_COMPARED, TRIPLES, RANDOM, CANCELLING = 1200, 400, 1000, 160, 300


@functools.cache
def spread(names):
    """Mnemonic per arch."""
    given = by_isa(names)
    found = {arch: mnemonic(given, arch_named(arch).isa) for arch in ARCHS}
    return {arch: name for arch, name in found.items() if name != "-"}


def by_isa(names):
    """The names by the first family or ISA of their validity, "" for all."""
    return dict(name.split(":") if ":" in name else ("", name) for name in names.split())


def mnemonic(given, isa):
    """The name on an ISA, from ``by_isa``. "-" means absent, as are dot products on one without them."""
    if wrong := given.keys() - {"", *(name for each in ISAS.values() for name in (each.name, each.family))}:
        message = f"{sorted(wrong)}: no family or ISA of kernels/tables/isas.toml"
        raise ValueError(message)
    before = [each.name for each in ISAS.values() if each.family == isa.family and each.name <= isa.name]
    found = [given[name] for name in ("", isa.family, *sorted(before)) if name in given]
    name = found[-1] if found else "-"
    return "-" if name.startswith(DOTS) and not isa.packed_dots else name


@dataclass(frozen=True, eq=False)
class Op:
    """An element-wise vector instruction.

    ``form`` is the text of unusual operands: {a} {b} {c} {d}, {ah} the high half of a register, {sa} a scalar
    register, {m} the written mask and {n} the mask operand (``m`` and ``n`` name their registers).  ``ulp``:
    the largest distance of a result from the nearest number.  ``before``: instructions before it.
    """

    names: str
    result: Kind | None
    sources: tuple[Kind, ...]
    reference: Callable[..., Any]
    form: str = ""
    m: str = "<40>"
    n: str = "<28>"
    keeps_high_on_gfx9: bool = False
    ulp: int = 0
    writes_exec: bool = False
    extra: tuple[tuple[int, ...], ...] = ()
    before: str = ""

    @property
    def operands(self):
        return self.form or ", ".join("{" + x + "}" for x in "dabc"[: 1 + len(self.sources)])

    def has(self, placeholder):
        return "{" + placeholder + "}" in self.operands

    @property
    def kinds(self):
        return dict(zip("abc", self.sources, strict=False)) | ({"d": self.result} if self.result else {})


@dataclass(frozen=True, eq=False)
class ScalarOp:
    """A scalar instruction: result (or None) and SCC (None: kept). ``ulp`` as for ``Op``."""

    names: str
    result: Kind | None
    sources: tuple[Kind, ...]
    reference: Callable[..., Any]
    form: str = ""
    ulp: int = 0
    extra: tuple[tuple[int, ...], ...] = ()

    @property
    def operands(self):
        keys = ("d" if self.result else "") + "abc"[: len(self.sources)]
        return self.form or ", ".join("{" + x + "}" for x in keys)

    @property
    def kinds(self):
        return dict(zip("abc", self.sources, strict=False)) | ({"d": self.result} if self.result else {})


@dataclass(frozen=True)
class Case:
    """A snippet. ``make`` returns its data and ``check(outputs)``. The check describes faults in words."""

    snippet: Snippet
    make: Callable[[], tuple[list[Data], Callable[[list[dict[str, list[int]]]], list[str]]]]
    memory: bytes = b""


@functools.cache
def arguments(reference, sources):
    """Names of a reference's arguments. Functions with other names, such as ``min``, take the sources."""
    try:
        given = inspect.signature(reference).parameters.values()
    except ValueError:  # a builtin
        return tuple("abc"[:sources])
    names = tuple(p.name for p in given if p.default is p.empty)
    return names if set(names) <= {*"abcdn", "scc"} else tuple("abc"[:sources])


def uses(op, what):
    return what in arguments(op.reference, len(op.sources))


def call(op, values):
    """(result or None, bit or None) of a reference."""
    return answer(op, *(values[name] for name in arguments(op.reference, len(op.sources))))


@functools.lru_cache(maxsize=1 << 15)  # the rows are equal on all archs
def answer(op, *values):
    got = op.reference(*values)
    if isinstance(got, tuple):
        return got
    return (got, None) if op.result else (None, got)


def same_number(op, got, want):
    got, want = op.result.canonical(got), op.result.canonical(want)
    f = op.result.format
    if not op.ulp or f.is_nan(got) or f.is_nan(want):
        return got == want
    return abs(got - want) <= op.ulp  # bit patterns of one sign are ordered like the numbers


def shown(op, values):
    """The operands of a reference, in words."""
    return ", ".join(f"{name}={values[name]:#x}" for name in arguments(op.reference, len(op.sources)))


@functools.lru_cache(maxsize=64)
def combinations(op, name):
    """Rows of operand values: edges (of two operands with each other), random ones, and cancelling sums."""
    rng, kinds = random.Random(name + op.operands), op.sources
    rows = [(x,) for x in kinds[0].edges] if len(kinds) == 1 else []
    if len(kinds) == 2:
        rows = list(itertools.product(kinds[0].edges, kinds[1].edges))
        rows = rng.sample(rows, min(len(rows), PAIRS if op.result else PAIRS_COMPARED))
        rows += zip(kinds[0].edges, kinds[0].edges, strict=True) if kinds[0] is kinds[1] else ()
    count = TRIPLES if len(kinds) == 3 else RANDOM
    rows += [tuple(kind.value(rng) for kind in kinds) for _ in range(count)]
    return [*rows, *op.extra, *cancelling(kinds, rng)]


def cancelling(kinds, rng):
    """a, b and about -a * b: they reveal whether an operation is fused."""
    f = kinds[0].format if len(kinds) == 3 else None
    if not f or any(kind.format != f for kind in kinds):
        return
    for _ in range(CANCELLING):
        a, b = kinds[0].value(rng), kinds[1].value(rng)
        yield a, b, f.neg(f.mul(a, b)) ^ rng.choice((0, 0, 1, 3, f.sign))
