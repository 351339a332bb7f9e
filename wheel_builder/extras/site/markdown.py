"""Tables as Markdown."""

from collections.abc import Iterable, Sequence


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """A table. The first row is its head."""
    head, *others = rows
    return "\n".join(_line(row) for row in (head, ["---"] * len(head), *others))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
