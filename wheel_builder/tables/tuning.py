"""The rules of tuning: ``kernels/tables/tuning.toml``, whose head explains them.  Standard library only."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wheel_builder.base.errors import TuningError
from wheel_builder.tables.archs import CHECKOUT
from wheel_builder.tables.rows import read_row, read_tables

TUNING = Path("kernels/tables/tuning.toml")
HEAD = f"Generated from {TUNING} by `python3 -m wheel_builder.tables.generated`; do not edit."


@dataclass(frozen=True)
class Better:
    """When a row replaces another one: its gain over all bins, and its loss in any of them."""

    least_gain: float
    most_loss: float


@dataclass(frozen=True)
class Tuning:
    """All rules."""

    better: Better


@cache
def known_tuning() -> Tuning:
    """The checkout's rules; raises ``TuningError`` when they cannot be read."""
    return parse_tuning((CHECKOUT / TUNING).read_text(encoding="utf-8"))


def parse_tuning(text: str) -> Tuning:
    """The rules of a text. Raises ``TuningError`` with everything that is wrong."""
    problems: list[str] = []
    tables = read_tables(text, TUNING.name, problems)
    found = read_row(Tuning, tables, TUNING.name, problems, {})
    if found is not None:
        problems += (
            f"{TUNING.name}: better.{name} is {value:g}, expected a share between 0 and 1"
            for name, value in vars(found.better).items()
            if not 0 < value < 1
        )
    if found is None or problems:
        title = f"{TUNING} does not describe rules of tuning"
        raise TuningError(title, problems, advice="its head explains the keys")
    return found  # type: ignore[no-any-return]


def python_tuning(tuning: Tuning) -> str:
    """The text of the package's ``values/tuning.py``."""
    better = tuning.better
    return f'''"""When a row replaces another one: its mean gain over bins, and its loss in any of them."""

# {HEAD}
LEAST_GAIN, MOST_LOSS = {better.least_gain}, {better.most_loss}
'''
