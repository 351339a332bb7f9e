"""Where the bytes are: a rectangle for each kernel, as large as its machine code, archs side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wheel_builder.build.budget import Costs
from wheel_builder.extras.cost.table import Row, rows_of
from wheel_builder.index.finder.html import Html, element

WIDTH, HEIGHT = 1200.0, 700.0
HEAD = 20.0
COLOURS = ("#3b6ea8", "#b3561e", "#3f7d3a", "#7a4fa3", "#a33b52", "#2a7f86", "#7d6b1d", "#666666")


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture."""

    x: float
    y: float
    width: float
    height: float


def squarified(sizes: Sequence[float], box: Box) -> list[Box]:
    """A rectangle inside ``box`` for each size, largest first, each as near to a square as its row allows."""
    if not sizes:
        return []
    scale = box.width * box.height / sum(sizes)
    areas = [size * scale for size in sizes]
    made: list[Box] = []
    while areas:
        side = min(box.width, box.height)
        count = 1
        while count < len(areas) and _worst(areas[: count + 1], side) <= _worst(areas[:count], side):
            count += 1
        row, areas = areas[:count], areas[count:]
        made += _row(row, box)
        box = _rest(sum(row), box)
    return made


def _worst(row: Sequence[float], side: float) -> float:
    """The longest ratio of sides in a row of these areas along ``side``."""
    thick = sum(row) / side
    return max(max(thick / (area / thick), (area / thick) / thick) for area in row)


def _row(row: Sequence[float], box: Box) -> Iterator[Box]:
    thick = sum(row) / min(box.width, box.height)
    at = 0.0
    for area in row:
        along = area / thick
        if box.width < box.height:
            yield Box(box.x + at, box.y, along, thick)
        else:
            yield Box(box.x, box.y + at, thick, along)
        at += along


def _rest(area: float, box: Box) -> Box:
    thick = area / min(box.width, box.height)
    if box.width < box.height:
        return Box(box.x, box.y + thick, box.width, max(0.0, box.height - thick))
    return Box(box.x + thick, box.y, max(0.0, box.width - thick), box.height)


def to_svg(archs: Mapping[str, Costs]) -> str:
    """The whole picture. Hovering over a rectangle shows its meaning."""
    rows = rows_of(archs)
    whole = sum(row.cost.code_bytes for row in rows)
    operations = list(dict.fromkeys(row.part("op") for row in rows))
    parts: list[Html] = []
    x = 0.0
    for arch in archs:
        own = sorted(
            (row for row in rows if row.arch == arch), key=lambda row: (-row.cost.code_bytes, row.name)
        )
        size = sum(row.cost.code_bytes for row in own)
        box = Box(x, HEAD, WIDTH * size / whole if whole else 0.0, HEIGHT - HEAD)
        parts.append(_text(f"{arch}: {size / 1024:.0f} KiB", box.x + 4, HEAD - 6))
        boxes = squarified([row.cost.code_bytes for row in own], box)
        parts += [_kernel(row, at, operations) for row, at in zip(own, boxes, strict=True)]
        x += box.width
    view = f"0 0 {WIDTH:.0f} {HEIGHT:.0f}"
    label = "machine code of each kernel, by arch"
    picture = element(
        "svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=view, role="img", aria_label=label
    )
    return f"{picture}\n"


def _kernel(row: Row, box: Box, operations: Sequence[str]) -> Html:
    colour = COLOURS[min(operations.index(row.part("op")), len(COLOURS) - 1)]
    said = f"{row.name} for {row.arch}: {row.cost.code_bytes} bytes, {row.cost.cpu_seconds:.2f} CPU-seconds"
    rectangle = element(
        "rect", element("title", said), x=f"{box.x:.1f}", y=f"{box.y:.1f}", width=f"{box.width:.1f}",
        height=f"{box.height:.1f}", fill=colour, stroke="#ffffff",
    )  # fmt: skip
    label = row.name.removeprefix("fa_")
    fits = box.width > 6.2 * len(label) and box.height > 14
    return element("g", rectangle, *([_text(label, box.x + 3, box.y + 12, "#ffffff")] if fits else []))


def _text(said: str, x: float, y: float, fill: str = "#222222") -> Html:
    return element(
        "text", said, x=f"{x:.1f}", y=f"{y:.1f}", fill=fill, font_size="11", font_family="sans-serif"
    )
