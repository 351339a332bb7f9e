"""The rules of tuning: ``kernels/tables/tuning.toml``, whose head explains them.  Standard library only."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import NamedTuple

from wheel_builder.base.errors import TuningError
from wheel_builder.tables.archs import CHECKOUT, known_archs
from wheel_builder.tables.kinds import BACKWARD, FORWARD, PACKED, Kind, known_kinds
from wheel_builder.tables.rows import read_row

TUNING = Path("kernels/tables/tuning.toml")
HEAD = f"Generated from {TUNING} by `python3 -m wheel_builder.tables.generated`; do not edit."
KERNELS = ("latent", "split", "tall", "whole")
DTYPES = ("fp16", "bf16")
DECODE = "decode"
HIDES = ("MaskedParams", "MaskedBwdParams")
NO_MASKS, MASKS = ("",), ("bool", "bias")
Bounds = tuple[int, int]  # both ends are included; no end if the second is 0


@dataclass(frozen=True)
class Better:
    """When a row replaces another one: its gain over all bins, and its loss in any of them."""

    least_gain: float
    most_loss: float

    def gained(self, ratios: Sequence[Fraction]) -> bool:
        """Whether the geometric mean of former times over new ones is enough."""
        return prod(ratios) >= (1 + exact(self.least_gain)) ** len(ratios)

    def lost(self, ratio: Fraction) -> bool:
        """Whether a row takes too long in a bin."""
        return ratio * (1 + exact(self.most_loss)) <= 1


def exact(value: float) -> Fraction:
    """The decimal number that was written."""
    return Fraction(repr(value))


@dataclass(frozen=True)
class Timed:
    """The sizes of the calls that ``tune`` times."""

    lengths: tuple[int, ...]
    widths: tuple[int, ...]
    tokens: int
    heads: int
    decode_batch: int


class Calls(NamedTuple):
    """What calls of a kernel are timed: their kind, whether causal, and masks."""

    kind: str
    causal: tuple[bool, ...]
    masks: tuple[str, ...]


@dataclass(frozen=True)
class Regime:
    """Bounds of calls. ``causal``: only such calls, or only others. None: both."""

    queries: Bounds = (0, 0)
    keys: Bounds = (0, 0)
    width: Bounds = (0, 0)
    causal: bool | None = None

    @property
    def bounds(self) -> tuple[Bounds, Bounds, Bounds]:
        """Those of sizes, in the order of all tables."""
        return self.queries, self.keys, self.width


@dataclass(frozen=True)
class Choice:
    """The kernels of calls. An empty field fits all."""

    kernels: str
    evidence: str
    regimes: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    head_dims: tuple[int, ...] = ()
    filled: float = 0.9
    places: int = 2
    in_flight: int = 512
    keys: int = 64


@dataclass(frozen=True)
class Tuning:
    """All rules, in the order of the file."""

    better: Better
    timed: Timed
    regimes: Mapping[str, Regime]
    choices: tuple[Choice, ...]


@cache
def known_tuning() -> Tuning:
    """The checkout's rules; raises ``TuningError`` when they cannot be read."""
    return parse_tuning((CHECKOUT / TUNING).read_text(encoding="utf-8"))


def parse_tuning(text: str) -> Tuning:
    """The rules of a text. Raises ``TuningError`` with everything that is wrong."""
    problems: list[str] = []
    found = _read(text, problems)
    problems += () if found is None else _problems(found)
    if found is None or problems:
        title = f"{TUNING} does not describe rules of tuning"
        raise TuningError(
            title, (f"{TUNING.name}: {each}" for each in problems), advice="its head explains the keys"
        )
    return found


def regime_of(rules: Tuning, queries: int, keys: int, width: int, *, causal: bool) -> str:
    """The regime of a call: as kernels/host/plan/regimes.hpp."""
    sizes = (queries, keys, width)
    return next(
        name
        for name, regime in rules.regimes.items()
        if regime.causal in (None, causal)
        and all(
            low <= n and (not high or n <= high) for (low, high), n in zip(regime.bounds, sizes, strict=True)
        )
    )


def choice_of(rules: Tuning, regime: str, arch: str, dtype: str, head_dim: int) -> Choice:
    """The first choice that fits."""
    for each in rules.choices:
        fits = zip(
            (each.regimes, each.archs, each.dtypes, each.head_dims),
            (regime, arch, dtype, head_dim),
            strict=True,
        )
        if all(not some or value in some for some, value in fits):
            break
    return each


def timed_calls() -> Mapping[str, Calls]:
    """By op, of the kernels that users time."""
    return {op: _calls(kind) for op, kind in known_kinds().items() if _is_timed(kind)}


def _is_timed(kind: Kind) -> bool:
    return bool(kind.tile) and kind.call in (FORWARD, BACKWARD)


def _calls(kind: Kind) -> Calls:
    words = DECODE if kind.rows == PACKED else kind.call
    hides = kind.params in HIDES
    return Calls(words, (False,) if hides or words == DECODE else (False, True), MASKS if hides else NO_MASKS)


def decode_rules() -> Choice:
    """The checkout's choice for few queries, of all archs."""
    return next(each for each in known_tuning().choices if each.kernels == "split" and not each.archs)


def _read(text: str, problems: list[str]) -> Tuning | None:
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(str(error))
        return None
    words = {"kernels": KERNELS, "archs": tuple(known_archs()), "dtypes": DTYPES}
    return read_row(Tuning, given, "table", problems, words)  # type: ignore[no-any-return]


def _problems(found: Tuning) -> Iterator[str]:
    for name, value in vars(found.better).items():
        if not 0 < value < 1:
            yield f"better.{name} is {value:g}, expected a share between 0 and 1"
    for name, value in vars(found.timed).items():
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers or min(numbers) <= 0:
            yield f"timed.{name} is {value}, expected positive numbers"
    for number, choice in enumerate(found.choices):
        for name in set(choice.regimes) - set(found.regimes):
            yield f"choices {number}: regimes has {name}, expected one of {', '.join(found.regimes)}"
        for field in ("filled", "places", "in_flight", "keys"):
            if getattr(choice, field) <= 0:
                yield f"choices {number}: {field} is {getattr(choice, field)}, expected a positive number"
    yield from _open_ends(found)


def _open_ends(found: Tuning) -> Iterator[str]:
    """Every call has a regime and a choice, and the first regime is that of few queries."""
    regimes = list(found.regimes.values())
    if not regimes or regimes[0] != Regime(queries=regimes[0].queries) or regimes[0].queries[1] == 0:
        yield "the first regime has no most queries, or other bounds, too"
    if not regimes or regimes[-1] != Regime():
        yield "the last regime has bounds"
    last = found.choices[-1] if found.choices else None
    if last is None or last.regimes or last.archs or last.dtypes or last.head_dims:
        yield "the last choice does not fit all calls"


def python_tuning(tuning: Tuning) -> str:
    """The text of the package's ``values/tuning.py``."""
    better, timed = tuning.better, tuning.timed
    lines = [
        '"""When a row replaces another one, the calls that are timed, and the regimes of forward calls."""',
        "",
        f"# {HEAD}",
        "# The mean gain over bins, and the loss in any of them.",
        f"LEAST_GAIN, MOST_LOSS = {better.least_gain}, {better.most_loss}",
        "# Of timed calls: lengths, heads of q for a head of k, tokens and heads of q, batch of a decode.",
        f"LENGTHS, WIDTHS = {timed.lengths}, {timed.widths}",
        f"TOKENS, HEADS, DECODE_BATCH = {timed.tokens}, {timed.heads}, {timed.decode_batch}",
        "# By op: their kind, whether they are causal, and their masks.",
        "CALLS = {",
        *(f"    {op!r}: {(*each,)},".replace("'", '"') for op, each in timed_calls().items()),
        "}",
        "# Bounds of queries, keys and heads of q for a head of k, no end if the second is 0; causal or not.",
        "REGIMES = {",
        *(f'    "{name}": {(*each.bounds, each.causal)},' for name, each in tuning.regimes.items()),
        "}",
        "# Evidence by regimes, archs, dtypes and head dims. Empty ones fit all calls; the first row holds.",
        "EVIDENCE = (",
        *(f"    {_evidence(each)},".replace("'", '"') for each in tuning.choices),
        ")",
    ]
    return "".join(f"{line}\n" for line in lines)


def _evidence(choice: Choice) -> tuple[object, ...]:
    return (choice.evidence, choice.regimes, choice.archs, choice.dtypes, choice.head_dims)


def cpp_tuning(tuning: Tuning) -> str:
    """The text of the host library's table of regimes and choices."""
    few = next(iter(tuning.regimes.values())).queries[1]
    return "\n".join(
        [
            f"// {HEAD}",
            "",
            f"inline constexpr std::int64_t kFewQueries = {few};  // of the first regime",
            "",
            "enum class Chosen { " + ", ".join(KERNELS) + " };",
            "",
            "inline constexpr Regime kRegimes[] = {",
            *(f'    {{"{name}", {_bounds(each)}}},' for name, each in tuning.regimes.items()),
            "};",
            "",
            "inline constexpr Choice kChoices[] = {",
            *(
                f"    {line},"
                for choice in tuning.choices
                for line in _cpp_choices(choice, tuple(tuning.regimes))
            ),
            "};",
            "",
        ]
    )


def _bounds(regime: Regime) -> str:
    causal = {None: "std::nullopt", True: "true", False: "false"}[regime.causal]
    return ", ".join([*(f"{{{least}, {most or 'kNoEnd'}}}" for least, most in regime.bounds), causal])


def _cpp_choices(choice: Choice, regimes: tuple[str, ...]) -> Iterator[str]:
    """A row for each combination of what is named."""
    numbers = ",".join(f" {value}" for value in (choice.filled, choice.places, choice.in_flight, choice.keys))
    for regime, arch, dtype, head_dim in product(
        [regimes.index(each) for each in choice.regimes] or [-1],
        [f"Gfx::{each}" for each in choice.archs] or ["std::nullopt"],
        [f"DType::{each}" for each in choice.dtypes] or ["std::nullopt"],
        choice.head_dims or (0,),
    ):
        yield f"{{{regime}, {arch}, {dtype}, {head_dim}, Chosen::{choice.kernels},{numbers}}}"
